//! Whether a read brought what had been written.

use crate::failure::{Failure, Kind};
use crate::generator::Data;
use crate::store::{Reading, Window};

/// Of the mean itself.
const MEAN_ERROR: f64 = 1e-9;

/// Holds an answer against the generator: as many readings, in their order, each timestamp, each value to its last bit.
///
/// # Errors
/// `wrong-answer` says the first thing that differs.
pub fn check(data: &Data, sensor: u64, first: u64, count: u64, answer: &[Reading]) -> Result<(), Failure> {
    let wrong = |what: String| {
        let last = first + count - 1;
        let message = format!("readings {first} to {last} of sensor {} ({sensor}): {what}", data.sensor(sensor));
        Err(Failure::new(Kind::WrongAnswer, message))
    };
    if answer.len() as u64 != count {
        return wrong(format!("{} were answered, not {count}", answer.len()));
    }
    if let Some(place) = answer.windows(2).position(|pair| pair[0].timestamp >= pair[1].timestamp) {
        let (earlier, later) = (answer[place].timestamp, answer[place + 1].timestamp);
        return wrong(format!("not in the order of time: {later} comes after {earlier}"));
    }
    for (number, reading) in (first..).zip(answer) {
        let written = data.reading(sensor, number);
        if reading.timestamp != written.timestamp {
            return wrong(format!("{} was answered, and {} was written", reading.timestamp, written.timestamp));
        }
        if reading.value.to_bits() != written.value.to_bits() {
            let (is, was) = (reading.value, written.value);
            return wrong(format!("at {} the value {is:?} was answered, and {was:?} was written", reading.timestamp));
        }
    }
    Ok(())
}

/// Holds what a database reckoned against the generator: the count, minimum and maximum to the last bit, and the mean to nine
/// digits, because sums differ in the last ones by their order.
///
/// # Errors
/// `wrong-answer` says the first thing that differs.
pub fn check_window(data: &Data, sensor: u64, first: u64, count: u64, answer: Window) -> Result<(), Failure> {
    let values = || (first..first + count).map(|number| data.value(sensor, number));
    let mean = values().sum::<f64>() / count as f64;
    let (min, max) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
    let near = (answer.mean - mean).abs() <= MEAN_ERROR * mean.abs();
    let exact = [(answer.min, min), (answer.max, max)].iter().all(|(is, was)| is.to_bits() == was.to_bits());
    if answer.count == count && near && exact {
        return Ok(());
    }
    let last = first + count - 1;
    let message = format!(
        "readings {first} to {last} of sensor {} ({sensor}): {answer:?} was answered, and written were count {count}, \
         mean {mean:?}, min {min:?}, max {max:?}",
        data.sensor(sensor)
    );
    Err(Failure::new(Kind::WrongAnswer, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Data = Data { seed: 1, sensors: 3, step_ms: 1000, late: None };

    type Change<'a> = &'a dyn Fn(&mut Vec<Reading>);

    fn verdict(change: impl FnOnce(&mut Vec<Reading>)) -> Result<(), String> {
        let mut answer = Vec::new();
        DATA.readings(2, 40, 10, &mut answer);
        change(&mut answer);
        check(&DATA, 2, 40, 10, &answer).map_err(|failure| {
            assert_eq!(failure.kind, Kind::WrongAnswer);
            failure.message
        })
    }

    #[test]
    fn the_readings_that_were_written_are_right() {
        assert_eq!(verdict(|_| ()), Ok(()));
    }

    #[test]
    fn a_window_is_right_or_not() {
        let values: Vec<f64> = (40..50).map(|number| DATA.value(2, number)).collect();
        let by = |order: fn(&f64, &f64) -> std::cmp::Ordering| values.iter().copied().max_by(order).unwrap();
        let sum: f64 = values.iter().rev().sum(); // by another order than the check's
        let right = Window { count: 10, mean: sum / 10.0, min: by(|a, b| b.total_cmp(a)), max: by(f64::total_cmp) };
        assert!(check_window(&DATA, 2, 40, 10, right).is_ok());
        for wrong in [
            Window { count: 9, ..right },
            Window { mean: right.mean * 1.000_001, ..right },
            Window { mean: f64::NAN, ..right },
            Window { min: right.max, ..right },
            Window { max: right.max + 0.001, ..right },
            Window::default(),
        ] {
            let failure = check_window(&DATA, 2, 40, 10, wrong).unwrap_err();
            assert!(failure.kind == Kind::WrongAnswer && failure.message.contains("count 10"), "{failure:?}");
        }
    }

    #[test]
    fn a_wrong_count_value_order_or_time_is_found() {
        let cases: [(Change, &str); 7] = [
            (&|answer| answer.truncate(9), "9 were answered, not 10"),
            (&|answer| answer.push(DATA.reading(2, 50)), "11 were answered"),
            (&Vec::clear, "0 were answered"),
            (&|answer| answer.swap(3, 4), "order of time"),
            (&|answer| answer[4] = answer[3], "order of time"),
            (&|answer| answer[9].timestamp += 1, "was written"),
            (&|answer| answer[0].value = f64::from_bits(answer[0].value.to_bits() + 1), "the value"),
        ];
        for (change, said) in cases {
            let message = verdict(change).unwrap_err();
            assert!(message.contains(said), "{message}");
        }
    }
}
