//! The estimators: each finds the highest rate that a path carries, by its own rule; and what whoever asks for an estimate may
//! choose, whatever the estimator.

pub mod kite2;
pub mod yaz_original;

use failure::Failure;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::outcome::Outcome;
use crate::probing::Watch;
use crate::transport::Transport;

/// Length of IP packets where nobody chose another.
pub const PACKET_BYTES: u32 = 1500;

/// Choices by the names that all estimators share; what is not chosen stays as it is by default.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Settings of the estimator's own, by their names; the choices below go before them.
    pub settings: Map<String, Value>,
    /// Length of the IP packets; `yaz-original` has its own.
    pub packet_bytes: Option<u32>,
    /// The lowest rate that is tried, in bit/s of IP packets; of `kite2` only.
    pub lowest_bps: Option<f64>,
    /// The highest: of `yaz-original`, as its shortest gap.
    pub highest_bps: Option<f64>,
    /// Exactly so many searches.
    pub instants: Option<u32>,
}

/// An estimator and how it is to search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "estimator", rename_all = "kebab-case")]
pub enum Estimator {
    /// Yaz as it was published, with its limits.
    YazOriginal(yaz_original::Settings),
    /// Ours, after the published facts of Kite2.
    Kite2(kite2::Settings),
}

impl Estimator {
    /// The names, as settings spell them.
    pub const NAMES: [&'static str; 2] = ["yaz-original", "kite2"];

    /// The estimator of a name with its defaults; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "yaz-original" => Some(Self::YazOriginal(yaz_original::Settings::default())),
            "kite2" => Some(Self::Kite2(kite2::Settings::default())),
            _ => None,
        }
    }

    /// The estimator of a name, as chosen.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for a name that is none, a setting that the estimator does not have, or a value of another kind;
    /// values out of range are refused when the estimate begins.
    pub fn chosen(name: &str, choices: Choices) -> Result<Self, Failure> {
        if !Self::NAMES.contains(&name) {
            let known = Self::NAMES.join(", ");
            return Err(Failure::Invalid(format!("there is no estimator {name:?}: accepted are {known}")));
        }
        let Choices { mut settings, packet_bytes, lowest_bps, highest_bps, instants } = choices;
        let original = name == "yaz-original";
        match packet_bytes {
            Some(bytes) if original && bytes != yaz_original::LONGEST_BYTES => {
                return Err(Failure::Invalid(format!(
                    "packets of {bytes} B: yaz-original begins with {} B and halves them by itself; leave the length out",
                    yaz_original::LONGEST_BYTES
                )));
            }
            Some(bytes) if !original => drop(settings.insert("packet_bytes".into(), json!(bytes))),
            _ => {}
        }
        if let Some(bps) = lowest_bps {
            if original {
                return Err(Failure::Invalid(format!("{name} has no lowest rate; leave it out, or use kite2")));
            }
            settings.insert("lowest_bps".into(), json!(bps));
        }
        if let Some(bps) = highest_bps {
            if !(bps.is_finite() && bps > 0.0) {
                return Err(Failure::Invalid(format!("a highest rate of {bps} bit/s; such as 300e6")));
            }
            let (setting, value) = if original {
                let gap_us = f64::from(yaz_original::LONGEST_BYTES) * 8e6 / bps;
                ("first_gap_us", json!(gap_us.round() as u32))
            } else {
                ("highest_bps", json!(bps))
            };
            settings.insert(setting.into(), value);
        }
        if let Some(instants) = instants {
            let effort = settings.entry("effort").or_insert_with(|| json!({}));
            let Value::Object(effort) = effort else {
                return Err(Failure::Invalid(format!("settings of {name}: effort is no map")));
            };
            effort.insert("fewest_instants".into(), json!(instants));
            effort.insert("most_instants".into(), json!(instants));
        }
        settings.insert("estimator".into(), json!(name));
        serde_json::from_value(Value::Object(settings))
            .map_err(|error| Failure::Invalid(format!("settings of {name}: {error}")))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::YazOriginal(_) => "yaz-original",
            Self::Kite2(_) => "kite2",
        }
    }

    /// Estimates the available bandwidth of a path.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for settings out of range, [`Failure::CannotPace`] when the sending host is slower than the
    /// path, [`Failure::NoAnswer`] when the path gives none, [`Failure::Cancelled`] when `watch` breaks, and whatever the
    /// transport fails with.
    pub fn estimate<'a>(&self, transport: &'a mut dyn Transport, watch: &'a mut Watch<'a>) -> Result<Outcome, Failure> {
        match self {
            Self::YazOriginal(settings) => yaz_original::estimate(transport, settings, watch),
            Self::Kite2(settings) => kite2::estimate(transport, settings, watch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(name: &str, choices: Choices) -> Estimator {
        Estimator::chosen(name, choices).unwrap()
    }

    fn refused(name: &str, choices: Choices) -> String {
        Estimator::chosen(name, choices).unwrap_err().to_string()
    }

    #[test]
    fn nothing_chosen_is_the_default_of_each() {
        for name in Estimator::NAMES {
            assert_eq!(Some(chosen(name, Choices::default())), Estimator::named(name));
        }
    }

    #[test]
    fn the_highest_rate_of_yaz_is_a_shortest_gap() {
        let choices = |packet_bytes| Choices { highest_bps: Some(1e9), packet_bytes, ..Choices::default() };
        let Estimator::Kite2(kite2::Settings { highest_bps, .. }) = chosen("kite2", choices(None)) else { panic!() };
        assert_eq!(highest_bps.to_bits(), 1e9f64.to_bits());
        let original = chosen("yaz-original", choices(Some(1500)));
        assert_eq!(original, chosen("yaz-original", choices(None)));
        assert!(matches!(original, Estimator::YazOriginal(yaz_original::Settings { first_gap_us: 12, .. })));
    }

    #[test]
    fn choices_go_before_settings_and_leave_the_others() {
        let settings = json!({"most_packets": 60, "packet_bytes": 300, "effort": {"seed": 9, "most_instants": 3}});
        let Value::Object(settings) = settings else { panic!() };
        let choices = Choices { settings, packet_bytes: Some(400), instants: Some(7), ..Choices::default() };
        let Estimator::Kite2(found) = chosen("kite2", choices) else { panic!() };
        assert_eq!((found.most_packets, found.packet_bytes), (60, 400));
        let effort = found.effort;
        assert_eq!((effort.seed, effort.fewest_instants, effort.most_instants), (9, 7, 7));
    }

    #[test]
    fn what_an_estimator_does_not_have_is_refused_with_a_reason() {
        let lowest = || Choices { lowest_bps: Some(1e6), ..Choices::default() };
        assert!(refused("yaz-original", lowest()).contains("kite2"));
        assert!(refused("yaz-original", Choices { packet_bytes: Some(800), ..Choices::default() }).contains("1500 B"));
        assert!(refused("pathload", Choices::default()).contains("yaz-original, kite2"));
        for bps in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(refused("kite2", Choices { highest_bps: Some(bps), ..Choices::default() }).contains("highest"));
        }
        let unknown = Map::from_iter([("speed".to_owned(), json!(1))]);
        assert!(refused("kite2", Choices { settings: unknown, ..Choices::default() }).contains("speed"));
        let effort = Map::from_iter([("effort".to_owned(), json!(1))]);
        let choices = Choices { settings: effort, instants: Some(1), ..Choices::default() };
        assert!(refused("kite2", choices).contains("effort"));
    }
}
