//! No database: what the loop itself costs.  Writes vanish, reads are answered from the generator.

use uuid::Uuid;

use crate::failure::{Failure, Kind};
use crate::generator::{Answers, Data};
use crate::spec::StoreSpec;
use crate::store::{About, Reading, Schema, Session, Store, Window};

struct NoStore {
    answers: Option<Answers>,
}

/// The store that keeps nothing.
///
/// # Errors
/// `bad-request` where options are given; it has none.
pub(super) fn open(spec: &StoreSpec, data: Option<&Data>) -> Result<Box<dyn Store>, Failure> {
    spec.only_options(&[])?;
    Ok(Box::new(NoStore { answers: data.copied().map(Answers::new) }))
}

impl Store for NoStore {
    fn about(&self) -> Result<About, Failure> {
        Ok(About { version: "none".into(), ..About::default() })
    }

    fn create(&self, _schema: Schema) -> Result<(), Failure> {
        Ok(())
    }

    fn drop_table(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn count(&self) -> Result<u64, Failure> {
        Err(Failure::new(Kind::Unsupported, "nothing is kept that could be counted"))
    }

    fn connect(&self) -> Result<Box<dyn Session>, Failure> {
        Ok(Box::new(NoSession { answers: self.answers.clone() }))
    }
}

struct NoSession {
    answers: Option<Answers>,
}

impl Session for NoSession {
    fn write(&mut self, _sensor: Uuid, _readings: &[Reading]) -> Result<(), Failure> {
        Ok(())
    }

    fn read(&mut self, sensor: Uuid, from: i64, to: i64, into: &mut Vec<Reading>) -> Result<(), Failure> {
        let nothing = || Failure::new(Kind::Unsupported, "no readings are known that could be answered");
        self.answers.as_ref().ok_or_else(nothing)?.read(sensor, from, to, into);
        Ok(())
    }

    fn last_value(&mut self, _sensor: Uuid, _now: i64, _into: &mut Vec<Reading>) -> Result<(), Failure> {
        Err(Failure::new(Kind::Unsupported, "nothing is kept of which one could be the newest"))
    }

    fn window(&mut self, _sensor: Uuid, _from: i64, _to: i64) -> Result<Window, Failure> {
        Err(Failure::new(Kind::Unsupported, "nothing is kept that could be reckoned with"))
    }
}
