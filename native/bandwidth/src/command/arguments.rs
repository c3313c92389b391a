//! Words of the command line: options with a value each, and the rest.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The words after a command.
#[derive(Debug)]
pub(crate) struct Arguments {
    options: BTreeMap<String, String>,
    rest: Vec<String>,
}

impl Arguments {
    /// Divides the words; `known` are the names of the command's options.
    pub(crate) fn of(words: impl IntoIterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut arguments = Self { options: BTreeMap::new(), rest: Vec::new() };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                arguments.rest.push(word);
                continue;
            };
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (option, None),
            };
            if !known.contains(&name) {
                return Err(format!("there is no option --{name} here; there are --{}", known.join(", --")));
            }
            let value = value.or_else(|| words.next()).ok_or_else(|| format!("--{name} needs a value"))?;
            if arguments.options.insert(name.to_owned(), value).is_some() {
                return Err(format!("--{name} is given twice"));
            }
        }
        Ok(arguments)
    }

    /// An option's value, if it is given.
    pub(crate) fn maybe<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, String> {
        let Some(text) = self.options.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| format!("--{name} {text}: {error}"))
    }

    /// An option's value, or the usual one.
    pub(crate) fn or<T: FromStr<Err: Display>>(&self, name: &str, usual: T) -> Result<T, String> {
        Ok(self.maybe(name)?.unwrap_or(usual))
    }

    /// An option's number, or the usual one, which must be finite and not below a least one.
    pub(crate) fn number(&self, name: &str, usual: f64, least: f64) -> Result<f64, String> {
        let number: f64 = self.or(name, usual)?;
        if number.is_finite() && number >= least {
            Ok(number)
        } else {
            Err(format!("--{name} {number}: accepted are numbers from {least} on"))
        }
    }

    /// The words that are no options: at most so many.
    pub(crate) fn rest(&self, most: usize) -> Result<&[String], String> {
        match self.rest.get(most) {
            Some(word) => Err(format!("{word:?} is one word too many")),
            None => Ok(&self.rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Result<Arguments, String> {
        Arguments::of(line.split_whitespace().map(str::to_owned), &["port", "rate"])
    }

    #[test]
    fn options_may_stand_anywhere_and_in_both_forms() {
        let arguments = arguments("--port 5 host --rate=1e9").unwrap();
        assert_eq!((arguments.or("port", 1u16), arguments.number("rate", 0.0, 0.0)), (Ok(5), Ok(1e9)));
        assert_eq!(arguments.rest(1).unwrap(), ["host"]);
        assert_eq!(arguments.maybe::<u16>("other"), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, named) in [("--speed 5", "--port, --rate"), ("--port", "value"), ("--port 1 --port 2", "twice")] {
            assert!(arguments(line).unwrap_err().contains(named), "{line}");
        }
        assert!(arguments("--port 70000").unwrap().or("port", 0u16).unwrap_err().contains("70000"));
        for wrong in ["nan", "inf", "-1"] {
            assert!(arguments(&format!("--rate {wrong}")).unwrap().number("rate", 0.0, 0.0).is_err(), "{wrong}");
        }
        assert!(arguments("one two").unwrap().rest(1).unwrap_err().contains("two"));
    }
}
