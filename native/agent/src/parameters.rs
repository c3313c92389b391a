//! Parameters of probes and loads: looked up by name, checked against what is accepted.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::channel::bounded::{Entries, excerpt};
use crate::failure::Failure;

/// Longest list.
const LONGEST_LIST: usize = 256;

/// The parameters of one probe or load.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Parameters(BTreeMap<String, Parameter>);

/// One value; what no probe or load takes is remembered only as such.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Parameter {
    Unsigned(u64),
    Real(f64),
    Truth(bool),
    Nil,
    Text(String),
    Texts(Vec<String>),
    Record(Parameters),
    Records(Vec<Parameters>),
    Other(String),
}

impl Parameters {
    /// An integer within the range.
    pub fn unsigned(&self, field: &str, accepted: RangeInclusive<u64>) -> Result<u64, Failure> {
        let range = format!("an integer from {} to {}", accepted.start(), accepted.end());
        match self.0.get(field) {
            Some(&Parameter::Unsigned(value)) if accepted.contains(&value) => Ok(value),
            other => Err(refusal(field, other, &range)),
        }
    }

    /// An integer within the range, or nil.
    pub fn optional(&self, field: &str, accepted: RangeInclusive<u64>) -> Result<Option<u64>, Failure> {
        let range = format!("an integer from {} to {}, or nil", accepted.start(), accepted.end());
        match self.0.get(field) {
            Some(&Parameter::Unsigned(value)) if accepted.contains(&value) => Ok(Some(value)),
            Some(Parameter::Nil) => Ok(None),
            other => Err(refusal(field, other, &range)),
        }
    }

    /// A number within the range, whole or not.
    pub fn real(&self, field: &str, accepted: RangeInclusive<f64>) -> Result<f64, Failure> {
        let range = format!("a number from {} to {}", accepted.start(), accepted.end());
        match self.0.get(field) {
            Some(&Parameter::Real(value)) if accepted.contains(&value) => Ok(value),
            Some(&Parameter::Unsigned(value)) if accepted.contains(&(value as f64)) => Ok(value as f64),
            other => Err(refusal(field, other, &range)),
        }
    }

    /// A number within the range, whole or not, or nil.
    pub fn optional_real(&self, field: &str, accepted: RangeInclusive<f64>) -> Result<Option<f64>, Failure> {
        match self.0.get(field) {
            Some(Parameter::Nil) => Ok(None),
            _ => self.real(field, accepted).map(Some),
        }
    }

    /// True or false.
    pub fn truth(&self, field: &str) -> Result<bool, Failure> {
        match self.0.get(field) {
            Some(&Parameter::Truth(value)) => Ok(value),
            other => Err(refusal(field, other, "true, false")),
        }
    }

    /// A map; empty where there is none.
    pub fn record(&self, field: &str) -> Result<Self, Failure> {
        match self.0.get(field) {
            None | Some(Parameter::Nil) => Ok(Self::default()),
            Some(Parameter::Record(record)) => Ok(record.clone()),
            other => Err(refusal(field, other, "a map")),
        }
    }

    /// A list of at least one map.
    pub fn records(&self, field: &str) -> Result<&[Self], Failure> {
        match self.0.get(field) {
            Some(Parameter::Records(records)) if !records.is_empty() => Ok(records),
            other => Err(refusal(field, other, "a list of maps")),
        }
    }

    /// One of the named choices.
    pub fn choice<T: Copy>(&self, field: &str, choices: &[(&str, T)]) -> Result<T, Failure> {
        let given = self.0.get(field);
        if let Some(Parameter::Text(text)) = given {
            if let Some(&(_, value)) = choices.iter().find(|(name, _)| name == text) {
                return Ok(value);
            }
        }
        let names: Vec<&str> = choices.iter().map(|&(name, _)| name).collect();
        Err(refusal(field, given, &names.join(", ")))
    }

    /// A text of one to so many bytes, none of them zero.
    pub fn text(&self, field: &str, longest: usize) -> Result<&str, Failure> {
        match self.0.get(field) {
            Some(Parameter::Text(text)) if (1..=longest).contains(&text.len()) && !text.contains('\0') => Ok(text),
            other => Err(refusal(field, other, &format!("a text of 1 to {longest} bytes"))),
        }
    }

    /// A list of at least one text.
    pub fn texts(&self, field: &str) -> Result<&[String], Failure> {
        match self.0.get(field) {
            Some(Parameter::Texts(texts)) if !texts.is_empty() => Ok(texts),
            other => Err(refusal(field, other, "a list of texts")),
        }
    }

    /// For callers inside the agent, tests above all.
    #[must_use]
    pub fn with_texts(mut self, field: &str, texts: &[&str]) -> Self {
        self.0.insert(field.into(), Parameter::Texts(texts.iter().map(|&text| text.into()).collect()));
        self
    }

    /// For callers inside the agent, tests above all.
    #[must_use]
    pub fn with_unsigned(mut self, field: &str, value: u64) -> Self {
        self.0.insert(field.into(), Parameter::Unsigned(value));
        self
    }

    /// For callers inside the agent, tests above all.
    #[must_use]
    pub fn with_text(mut self, field: &str, value: &str) -> Self {
        self.0.insert(field.into(), Parameter::Text(value.into()));
        self
    }
}

fn refusal(field: &str, given: Option<&Parameter>, accepted: &str) -> Failure {
    let given = match given {
        None => "missing".to_owned(),
        Some(Parameter::Unsigned(value)) => value.to_string(),
        Some(Parameter::Text(text)) => format!("{:?}", excerpt(text)),
        Some(Parameter::Real(value)) => value.to_string(),
        Some(Parameter::Truth(value)) => value.to_string(),
        Some(Parameter::Nil) => "nil".to_owned(),
        Some(Parameter::Texts(texts)) => format!("a list of {} texts", texts.len()),
        Some(Parameter::Record(_)) => "a map".to_owned(),
        Some(Parameter::Records(records)) => format!("a list of {} maps", records.len()),
        Some(Parameter::Other(description)) => description.clone(),
    };
    Failure::bad_request(format!("params.{field} is {given}; accepted: {accepted}"))
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(deserializer.deserialize_map(Entries(PhantomData))?))
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyParameter)
    }
}

struct AnyParameter;

fn other(value: impl Display) -> Parameter {
    Parameter::Other(value.to_string())
}

impl<'de> Visitor<'de> for AnyParameter {
    type Value = Parameter;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a parameter")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Parameter, E> {
        Ok(Parameter::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
        // Other encoders use a signed marker for any integer.
        u64::try_from(value).map_or_else(|_| Ok(other(value)), |value| Ok(Parameter::Unsigned(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Parameter, E> {
        Ok(Parameter::Real(value))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
        Ok(Parameter::Truth(value))
    }

    fn visit_unit<E>(self) -> Result<Parameter, E> {
        Ok(Parameter::Nil)
    }

    fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
        Ok(Parameter::Text(value.to_owned()))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Parameter, E> {
        Ok(other(format_args!("{} bytes", value.len())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parameter, A::Error> {
        let (mut texts, mut records) = (Vec::new(), Vec::new());
        while let Some(element) = list.next_element::<Parameter>()? {
            match element {
                Parameter::Text(text) if texts.len() < LONGEST_LIST && records.is_empty() => texts.push(text),
                Parameter::Record(record) if records.len() < LONGEST_LIST && texts.is_empty() => records.push(record),
                _ => {
                    while list.next_element::<IgnoredAny>()?.is_some() {}
                    return Ok(other("a list that is too long, or not of texts or of maps"));
                }
            }
        }
        Ok(if records.is_empty() { Parameter::Texts(texts) } else { Parameter::Records(records) })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parameter, A::Error> {
        Ok(Parameter::Record(Parameters(Entries(PhantomData).visit_map(map)?)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parameter, D::Error> {
        // A MessagePack extension.
        IgnoredAny::deserialize(deserializer)?;
        Ok(other("an extension value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_field_the_value_and_what_is_accepted() {
        let parameters = Parameters::default().with_unsigned("samples", 0).with_text("function", "rdtsq");
        let message = |failure: Failure| failure.message;
        assert_eq!(
            message(parameters.unsigned("samples", 1..=10).unwrap_err()),
            "params.samples is 0; accepted: an integer from 1 to 10"
        );
        assert_eq!(
            message(parameters.unsigned("seed", 0..=9).unwrap_err()),
            "params.seed is missing; accepted: an integer from 0 to 9"
        );
        assert_eq!(
            message(parameters.choice("function", &[("rdtsc", 1), ("rdtscp", 2)]).unwrap_err()),
            "params.function is \"rdtsq\"; accepted: rdtsc, rdtscp"
        );
        assert_eq!(message(parameters.choice("samples", &[("x", 1)]).unwrap_err()), "params.samples is 0; accepted: x");
    }
}
