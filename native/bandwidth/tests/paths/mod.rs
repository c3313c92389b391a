//! Simulated paths, and how Kite2 does on many of one kind.

#![allow(dead_code, reason = "each test file uses a part")]

use std::ops::ControlFlow;

use bandwidth::estimators::{Estimator, kite2};
use bandwidth::outcome::Outcome;
use bandwidth::simulated::{CrossTraffic, Hop, Path, SimulatedPath};
use failure::Failure;

/// Length of the probes, as IP packets; on the wire, each is 38 B longer.
pub(crate) const PROBE_BYTES: u32 = 1500;

/// A full packet of the cross traffic, as a wire counts it.
pub(crate) const CROSS_BYTES: u32 = 1538;

/// Others' packets at random.
pub(crate) fn poisson(rate_bps: f64) -> CrossTraffic {
    CrossTraffic::Poisson { rate_bps, packet_bytes: CROSS_BYTES }
}

/// Others' packets at equal intervals.
pub(crate) fn constant(rate_bps: f64) -> CrossTraffic {
    CrossTraffic::Constant { rate_bps, packet_bytes: CROSS_BYTES }
}

/// One Ethernet link with others on it.
pub(crate) fn link(capacity_bps: f64, cross: CrossTraffic) -> Path {
    Path::of(Hop::ethernet(capacity_bps).with(cross))
}

/// Runs an estimator once on a path of this seed.
pub(crate) fn run(estimator: &Estimator, path: &Path, seed: u64) -> Result<Outcome, Failure> {
    let mut transport = SimulatedPath::new(path.clone(), seed);
    estimator.estimate(&mut transport, &mut |_| ControlFlow::Continue(()))
}

/// How Kite2 did on many seeds of one path.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Signed errors as shares of the truth, in order of size.
    pub(crate) errors: Vec<f64>,
    /// Intervals that hold the truth.
    pub(crate) covered: usize,
    /// What each run found.
    pub(crate) outcomes: Vec<Outcome>,
}

impl Tally {
    /// Counts over so many seeds.
    pub(crate) fn of(path: &Path, seeds: u64) -> Self {
        let estimator = Estimator::Kite2(kite2::Settings::default());
        let truth = path.available_bps(PROBE_BYTES);
        let outcomes: Vec<Outcome> =
            (0..seeds).map(|seed| run(&estimator, path, 1000 + seed).expect("an estimate")).collect();
        let mut errors: Vec<f64> =
            outcomes.iter().map(|outcome| outcome.estimate.available_bps / truth - 1.0).collect();
        errors.sort_by(f64::total_cmp);
        let holds = |outcome: &&Outcome| (outcome.estimate.low_bps..=outcome.estimate.high_bps).contains(&truth);
        let covered = outcomes.iter().filter(holds).count();
        Self { errors, covered, outcomes }
    }

    /// The median of the errors' sizes.
    pub(crate) fn absolute_error(&self) -> f64 {
        let mut sizes: Vec<f64> = self.errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        sizes[sizes.len() / 2]
    }

    /// The median of the errors.
    pub(crate) fn bias(&self) -> f64 {
        self.errors[self.errors.len() / 2]
    }

    /// Fails unless the median absolute error is at most this, and so many intervals hold the truth.
    pub(crate) fn must(&self, what: &str, error: f64, coverage: f64) {
        let share = self.covered as f64 / self.outcomes.len() as f64;
        let mean = |figure: &dyn Fn(&Outcome) -> f64| {
            self.outcomes.iter().map(figure).sum::<f64>() / self.outcomes.len() as f64
        };
        let summary = format!(
            "{what}: error {:.2} %, bias {:+.2} %, coverage {:.0} %, {:.1} MB, {:.1} s, {:.1} discarded",
            100.0 * self.absolute_error(),
            100.0 * self.bias(),
            100.0 * share,
            mean(&|outcome| outcome.bytes as f64 / 1e6),
            mean(&|outcome| outcome.duration_ns as f64 / 1e9),
            mean(&|outcome| f64::from(outcome.discarded)),
        );
        println!("{summary}");
        assert!(self.absolute_error() <= error, "{summary}");
        assert!(share >= coverage, "{summary}");
    }
}
