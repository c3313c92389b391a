//! The estimators: each finds the highest rate that a path carries, by its own rule.

pub mod choices;
pub mod kite2;
pub mod yaz_original;

use failure::Failure;
use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::probing::Watch;
use crate::transport::Transport;

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
