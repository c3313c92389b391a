//! Lists, maps and texts of a stranger, bounded before they are stored.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Longest list or map within a payload.
const LONGEST: usize = 4096;

/// The beginning of a text that a stranger sent, for a message.
#[must_use]
pub fn excerpt(text: &str) -> String {
    const KEPT: usize = 200;
    if text.chars().nth(KEPT).is_none() { text.to_owned() } else { text.chars().take(KEPT).chain(['…']).collect() }
}

/// A list of at most [`LONGEST`] elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounded<T>(pub Vec<T>);

impl<T> Default for Bounded<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Bounded<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
            type Value = Bounded<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {LONGEST} elements")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == LONGEST {
                        return Err(A::Error::custom(format_args!("a list of more than {LONGEST} elements")));
                    }
                    elements.push(element);
                }
                Ok(Bounded(elements))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// A map from text to text of at most [`LONGEST`] entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundedMap(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for BoundedMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(deserializer.deserialize_map(Entries(PhantomData))?))
    }
}

/// A map that is read later, by whoever knows into what; it is checked to be one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries::<IgnoredAny>(PhantomData)).map(|_| Self)
    }
}

/// Reads a bounded map from text to some value.
struct Entries<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a map of at most {LONGEST} entries")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if entries.len() == LONGEST {
                return Err(A::Error::custom(format_args!("a map of more than {LONGEST} entries")));
            }
            if entries.contains_key(&key) {
                map.next_value::<IgnoredAny>()?;
                return Err(A::Error::custom(format_args!("the key {:?} twice", excerpt(&key))));
            }
            let value = map.next_value()?;
            entries.insert(key, value);
        }
        Ok(entries)
    }
}
