//! Whether a read brought what had been written.

use crate::failure::{Failure, Kind};
use crate::generator::Data;
use crate::store::Reading;

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
