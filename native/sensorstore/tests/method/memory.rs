//! A store in memory that does what a test tells it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sensorstore::failure::Failure;
use sensorstore::generator::Data;
use sensorstore::measure::{Measured, measure};
use sensorstore::store::{About, Reading, Schema, Session, Store, Window};
use serde_json::{Value, json};
use uuid::Uuid;

type Rows = HashMap<Uuid, BTreeMap<i64, f64>>;
/// Is told the number of the statement (or of the batch, where they are pipelined), and may wait or fail.
pub(crate) type Behaviour = Arc<dyn Fn(u64) -> Result<(), Failure> + Send + Sync>;

/// What becomes of the readings that the so-manieth read brings.
pub(crate) type Distortion = dyn Fn(u64, &mut Vec<Reading>) + Send + Sync;

/// What all sessions share.
#[derive(Clone)]
pub(crate) struct Memory {
    pub(crate) rows: Arc<Mutex<Rows>>,
    pub(crate) statements: Arc<AtomicU64>,
    pub(crate) connections: Arc<AtomicU64>,
    behaviour: Behaviour,
    /// Changes what is read.
    pub(crate) distort: Arc<Distortion>,
}

impl Memory {
    pub(crate) fn new(behaviour: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        Self {
            rows: Arc::default(),
            statements: Arc::default(),
            connections: Arc::default(),
            behaviour: Arc::new(behaviour),
            distort: Arc::new(|_, _| ()),
        }
    }

    pub(crate) fn measure(&self, specification: Value) -> Measured {
        measure(&serde_json::from_value(specification).unwrap(), self).unwrap()
    }

    /// As many readings of a sensor as if `prepare` had written them.
    pub(crate) fn preload(&self, sensor: u64, count: u64) {
        let (data, mut readings) = (Data { seed: 11, sensors: 8, step_ms: 1000, late: None }, Vec::new());
        data.readings(sensor, 0, count, &mut readings);
        self.keep(data.sensor(sensor), &readings);
    }

    fn begin(&self) -> Result<u64, Failure> {
        let number = self.statements.fetch_add(1, Ordering::Relaxed);
        (self.behaviour)(number).map(|()| number)
    }

    fn keep(&self, sensor: Uuid, readings: &[Reading]) {
        let mut rows = self.rows.lock().unwrap();
        rows.entry(sensor).or_default().extend(readings.iter().map(|reading| (reading.timestamp, reading.value)));
    }
}

/// A measurement without warm-up.
pub(crate) fn specification(duration_ms: u64, streams: &Value) -> Value {
    json!({
        "store": {"driver": "none"}, "data": {"seed": 11, "sensors": 8}, "streams": streams,
        "warmup_ms": 0, "duration_ms": duration_ms,
    })
}

impl Store for Memory {
    fn about(&self) -> Result<About, Failure> {
        Ok(About::default())
    }

    fn create(&self, _schema: Schema) -> Result<(), Failure> {
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn count(&self) -> Result<u64, Failure> {
        Ok(self.rows.lock().unwrap().values().map(|sensor| sensor.len() as u64).sum())
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(self.clone()))
    }
}

impl Session for Memory {
    fn write(&mut self, sensor: Uuid, readings: &[Reading]) -> Result<(), Failure> {
        self.begin()?;
        self.keep(sensor, readings);
        Ok(())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        let number = self.begin()?;
        into.clear();
        let rows = self.rows.lock().unwrap();
        let found = rows.get(&sensor).into_iter().flat_map(|sensor| sensor.range(from..=to));
        into.extend(found.map(|(&timestamp, &value)| Reading { timestamp, value }));
        (self.distort)(number, into);
        Ok(())
    }

    fn last_value(&mut self, sensor: Uuid, _now: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        self.read(sensor, i64::MIN, i64::MAX, into)?;
        into.drain(..into.len().saturating_sub(1));
        Ok(())
    }

    fn window(&mut self, sensor: Uuid, from: i64, to: i64) -> Result<Window, Failure> {
        let mut readings = Vec::new();
        self.read(sensor, from, to, &mut readings)?;
        let values = || readings.iter().map(|reading| reading.value);
        Ok(Window {
            count: readings.len() as u64,
            mean: values().sum::<f64>() / readings.len() as f64,
            min: values().fold(f64::MAX, f64::min),
            max: values().fold(f64::MIN, f64::max),
        })
    }

    fn write_pipelined(
        &mut self,
        writes: &[(Uuid, &[Reading])],
        acknowledged: &mut dyn FnMut(usize),
    ) -> Result<(), Failure> {
        self.begin()?;
        for (number, (sensor, readings)) in writes.iter().enumerate() {
            self.keep(*sensor, readings);
            acknowledged(number);
        }
        Ok(())
    }
}
