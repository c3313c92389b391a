//! 128 random bits: the token of a session, or the secret of a listener.

use std::fmt;
use std::str::FromStr;

use failure::Failure;

/// Bytes of a token.
pub const BYTES: usize = 16;

/// A token.  It is written as 32 hexadecimal digits.
#[derive(Clone, Copy)]
pub struct Token([u8; BYTES]);

impl Token {
    /// A new one, from the kernel's random numbers.
    pub fn random() -> Result<Self, Failure> {
        let mut bytes = [0; BYTES];
        // SAFETY: fills at most the bytes that are given.
        let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), BYTES, 0) };
        if filled == BYTES as isize { Ok(Self(bytes)) } else { Err(Failure::last("asking for random numbers")) }
    }

    /// As it stands in messages and probes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Whether these bytes are the token.  Takes as long for wrong ones, wherever they differ.
    #[inline]
    #[must_use]
    pub fn is(&self, bytes: &[u8]) -> bool {
        let Ok(bytes) = <[u8; BYTES]>::try_from(bytes) else { return false };
        u128::from_ne_bytes(bytes) ^ u128::from_ne_bytes(self.0) == 0
    }
}

impl TryFrom<&[u8]> for Token {
    type Error = Failure;

    fn try_from(bytes: &[u8]) -> Result<Self, Failure> {
        let bytes = bytes.try_into();
        bytes.map(Self).map_err(|_| Failure::Protocol(format!("the listener's token does not have {BYTES} bytes")))
    }
}

impl FromStr for Token {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        let wrong = || Failure::Invalid(format!("a token is {} hexadecimal digits, not {text:?}", 2 * BYTES));
        if text.len() != 2 * BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(text, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| wrong())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Not the token itself: what is printed for developers must not let others into a session.
impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_written_and_no_two_are_alike() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert!(one.is(one.bytes()) && !one.is(other.bytes()) && !one.is(&one.bytes()[1..]));
        assert!(one.to_string().parse::<Token>().unwrap().is(one.bytes()));
        assert!(!format!("{one:?}").contains(&one.to_string()[..8]));
    }

    #[test]
    fn what_is_no_token_is_refused_with_what_one_is() {
        for wrong in ["", "12", &"g".repeat(32), &"+".repeat(32), &"é".repeat(16), &"1".repeat(33)] {
            let message = wrong.parse::<Token>().unwrap_err().to_string();
            assert!(message.contains("32 hexadecimal digits"), "{message}");
        }
    }
}
