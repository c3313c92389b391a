//! Probes and loads by their names, and their parameters: each declares its own as a structure, and serde refuses what does not
//! fit by the field's name, the value, and what is accepted.
//!
//! They are decoded from the request's payload once it is known for whom, so that nothing is stored that nobody takes.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use bandwidth::pacing::placement::Placement;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Number;

use crate::channel::bounded::{Bounded, excerpt};
use crate::channel::message::DEEPEST;
use crate::failure::{Code, Failure};

/// A kind of probe or load, and what begins one.
#[derive(Debug)]
pub struct Entry<Begin> {
    /// Its name in requests.
    pub name: &'static str,
    /// Begins one.
    pub begin: Begin,
}

/// The entry of a name.
///
/// # Errors
/// `not-found`, with the names that there are.
pub fn find<Begin>(what: &str, entries: &'static [Entry<Begin>], name: &str) -> Result<&'static Entry<Begin>, Failure> {
    entries.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        Failure::new(Code::NotFound, format!("no {what} {:?}; there are: {}", excerpt(name), names.join(", ")))
    })
}

/// The parameters of one probe or load, as they came.
#[derive(Clone, Debug)]
pub struct Parameters {
    payload: Arc<[u8]>,
    /// Those of the load beside a probe, not of the request itself.
    beside: bool,
}

impl Parameters {
    /// Those of the probe or the load that a request names.
    #[must_use]
    pub fn of_request(payload: &[u8]) -> Self {
        Self { payload: payload.into(), beside: false }
    }

    /// Those of the load that runs beside the probe of the same request.
    #[must_use]
    pub fn of_load_beside(&self) -> Self {
        Self { beside: true, ..self.clone() }
    }

    /// Decodes them.
    ///
    /// # Errors
    /// `bad-request`: a field is missing, unknown, of another type or outside what is accepted.
    pub fn read<P: DeserializeOwned>(&self) -> Result<P, Failure> {
        #[derive(Deserialize)]
        struct Request<P> {
            params: P,
        }
        #[derive(Deserialize)]
        struct Probe<P> {
            load: Request<P>,
        }
        if self.beside {
            decoded::<Probe<P>>(&self.payload).map(|probe| probe.load.params)
        } else {
            decoded::<Request<P>>(&self.payload).map(|request| request.params)
        }
    }
}

fn decoded<T: DeserializeOwned>(payload: &[u8]) -> Result<T, Failure> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(payload);
    decoder.set_max_depth(DEEPEST);
    serde_path_to_error::deserialize(&mut decoder)
        .map_err(|error| Failure::bad_request(excerpt(&format!("{}: {}", error.path(), error.inner()))))
}

/// An integer within bounds.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Number")]
pub struct Int<const LEAST: u64, const MOST: u64>(pub u64);

impl<const LEAST: u64, const MOST: u64> TryFrom<Number> for Int<LEAST, MOST> {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let value = number.as_u64().filter(|value| (LEAST..=MOST).contains(value));
        value.map(Self).ok_or_else(|| format!("{number}; accepted: an integer from {LEAST} to {MOST}"))
    }
}

/// A number within bounds, whole or not.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Number")]
pub struct Real<const LEAST: u64, const MOST: u64>(pub f64);

impl<const LEAST: u64, const MOST: u64> TryFrom<Number> for Real<LEAST, MOST> {
    type Error = String;

    fn try_from(number: Number) -> Result<Self, String> {
        let value = number.as_f64().filter(|value| (LEAST as f64..=MOST as f64).contains(value));
        value.map(Self).ok_or_else(|| format!("{number}; accepted: a number from {LEAST} to {MOST}"))
    }
}

/// A text of one byte or more, none of them zero.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Text<const LONGEST: usize>(pub String);

impl<const LONGEST: usize> TryFrom<String> for Text<LONGEST> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if (1..=LONGEST).contains(&text.len()) && !text.contains('\0') {
            return Ok(Self(text));
        }
        Err(format!("{:?}; accepted: a text of 1 to {LONGEST} bytes", excerpt(&text)))
    }
}

/// What a text stands for: an address, for instance.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: FromStr<Err: Display>")]
pub struct Parsed<T>(pub T);

impl<T: FromStr<Err: Display>> TryFrom<String> for Parsed<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|why| format!("{:?} is not accepted: {why}", excerpt(&text)))
    }
}

/// What a name stands for; `auto` leaves it open.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String", bound = "T: FromStr<Err: Display>")]
pub struct Auto<T>(pub Option<T>);

impl<T: FromStr<Err: Display>> TryFrom<String> for Auto<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { Parsed::try_from(text).map(|Parsed(named)| Self(Some(named))) }
    }
}

/// A list of one element or more.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Bounded<T>", bound = "T: Deserialize<'de>")]
pub struct List<T, const MOST: usize>(pub Vec<T>);

impl<T, const MOST: usize> TryFrom<Bounded<T>> for List<T, MOST> {
    type Error = String;

    fn try_from(Bounded(elements): Bounded<T>) -> Result<Self, String> {
        match elements.len() {
            length if (1..=MOST).contains(&length) => Ok(Self(elements)),
            length => Err(format!("a list of {length}; accepted: a list of 1 to {MOST}")),
        }
    }
}

/// What random numbers begin with.
pub type Seed = Int<0, { u64::MAX }>;

/// A processor's number.
pub type Cpu = Int<0, 1023>;

/// A priority of `SCHED_FIFO`.
pub type Fifo = Int<1, 99>;

/// Rates in bit/s that may be tried or sent at.
pub type Bps = Real<1_000, 1_000_000_000_000>;

/// Where a thread shall run.
#[must_use]
pub fn placement(cpu: Option<Cpu>, fifo: Option<Fifo>) -> Placement {
    Placement { cpu: cpu.map(|cpu| cpu.0 as usize), fifo: fifo.map(|priority| priority.0 as u8) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "it is only decoded")]
    struct Asked {
        samples: Int<1, 10>,
        share: Option<Real<0, 1>>,
        function: Function,
        listener: Parsed<Ipv4Addr>,
        argv: List<Text<5>, 2>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Function {
        Rdtsc,
        Rdtscp,
    }

    fn refusal(field: &str, value: &Value) -> String {
        let mut params =
            json!({"samples": 1, "share": 1, "function": "rdtsc", "listener": "10.0.0.1", "argv": ["true"]});
        assert!(read(&params).is_ok());
        if value.is_null() {
            params.as_object_mut().unwrap().remove(field);
        } else {
            params[field] = value.clone();
        }
        read(&params).unwrap_err().message
    }

    fn read(params: &Value) -> Result<Asked, Failure> {
        let payload = rmp_serde::to_vec_named(&json!({"id": 1, "params": params, "load": {"params": params}})).unwrap();
        let own = Parameters::of_request(&payload);
        let beside = own.of_load_beside().read::<Asked>();
        assert_eq!(
            beside.map_err(|failure| failure.message.replacen("load.", "", 1)).is_ok(),
            own.read::<Asked>().is_ok()
        );
        own.read()
    }

    #[test]
    fn a_refusal_names_the_field_the_value_and_what_is_accepted() {
        for (field, value, message) in [
            ("samples", json!(-5), "params.samples: -5; accepted: an integer from 1 to 10"),
            ("samples", json!(0), "params.samples: 0; accepted: an integer from 1 to 10"),
            ("samples", json!("x"), "params.samples: invalid type: string \"x\", expected a JSON number"),
            ("samples", Value::Null, "params: missing field `samples`"),
            ("sample", json!(1), "params.sample: unknown field `sample`, expected one of `samples`, `share`"),
            ("share", json!(1.5), "params.share: 1.5; accepted: a number from 0 to 1"),
            ("function", json!("rdtsq"), "params.function: unknown variant `rdtsq`, expected `rdtsc` or `rdtscp`"),
            ("listener", json!("x"), "params.listener: \"x\" is not accepted: invalid IPv4 address syntax"),
            ("argv", json!([]), "params.argv: a list of 0; accepted: a list of 1 to 2"),
            ("argv", json!(["a", "b", "c"]), "params.argv: a list of 3; accepted: a list of 1 to 2"),
            ("argv", json!(["true", "toolong"]), "params.argv[1]: \"toolong\"; accepted: a text of 1 to 5 bytes"),
        ] {
            assert!(refusal(field, &value).starts_with(message), "{}", refusal(field, &value));
        }
    }
}
