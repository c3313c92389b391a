//! Frames: a length of four bytes, big endian, and as many bytes of payload.

use std::fmt;
use std::io::{self, Read};

/// Largest payload, in bytes.
pub const LARGEST: usize = 4_194_304;

/// A receive buffer larger than this is given back after its frame.
const KEPT_CAPACITY: usize = 65_536;

/// Why no frame could be read.
#[derive(Debug)]
pub enum FrameError {
    /// The peer went away inside a frame: this many bytes of it had come.
    Truncated {
        /// Bytes received, those of the length included.
        received: usize,
        /// Bytes that the frame should have had, as far as known.
        expected: usize,
    },
    /// The announced length is zero or above [`LARGEST`].
    Length(u32),
    /// The stream failed.
    Io(io::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { received, expected } => {
                write!(formatter, "the peer went away inside a frame, after {received} of {expected} bytes")
            }
            Self::Length(length) => write!(formatter, "a frame of {length} bytes: accepted are 1 to {LARGEST}"),
            Self::Io(error) => write!(formatter, "the channel failed: {error}"),
        }
    }
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads one frame's payload into the buffer; `false` at the end of the stream between frames.
///
/// Memory grows with the bytes that arrive, not with the length that was announced.
pub fn read<R: Read>(reader: &mut R, payload: &mut Vec<u8>) -> Result<bool, FrameError> {
    payload.clear();
    payload.shrink_to(KEPT_CAPACITY);
    let mut header = Vec::with_capacity(4);
    reader.by_ref().take(4).read_to_end(&mut header)?;
    let Ok(header) = <[u8; 4]>::try_from(header.as_slice()) else {
        return if header.is_empty() {
            Ok(false)
        } else {
            Err(FrameError::Truncated { received: header.len(), expected: 4 })
        };
    };
    let announced = u32::from_be_bytes(header);
    let length = announced as usize;
    if length == 0 || length > LARGEST {
        return Err(FrameError::Length(announced));
    }
    reader.by_ref().take(u64::from(announced)).read_to_end(payload)?;
    if payload.len() < length {
        return Err(FrameError::Truncated { received: 4 + payload.len(), expected: 4 + length });
    }
    Ok(true)
}

/// Puts the length in front of a payload that was written after four bytes left free.
///
/// `false` when the payload is empty or too large for a frame.
#[must_use]
pub fn seal(frame: &mut [u8]) -> bool {
    let Some((header, payload)) = frame.split_first_chunk_mut::<4>() else {
        return false;
    };
    if payload.is_empty() || payload.len() > LARGEST {
        return false;
    }
    *header = (payload.len() as u32).to_be_bytes();
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealed(payload: &[u8]) -> Vec<u8> {
        let mut frame = [&[0; 4], payload].concat();
        assert!(seal(&mut frame));
        frame
    }

    /// A reader that hands out what it has in pieces of at most so many bytes, as pipes and ports do.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(buffer.len()).min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn what_was_sealed_is_read_back_however_it_is_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..6),
            piece in 1usize..64,
        ) {
            let stream: Vec<u8> = payloads.iter().flat_map(|payload| sealed(payload)).collect();
            let mut reader = Pieces(&stream, piece);
            let mut payload = Vec::new();
            for expected in &payloads {
                prop_assert!(read(&mut reader, &mut payload).unwrap());
                prop_assert_eq!(&payload, expected);
            }
            prop_assert!(!read(&mut reader, &mut payload).unwrap());
        }

        #[test]
        fn any_proper_prefix_is_truncated(payload in prop::collection::vec(any::<u8>(), 1..100), cut in 0.0..1.0f64) {
            let frame = sealed(&payload);
            let kept = 1 + ((frame.len() - 1) as f64 * cut) as usize;
            let result = read(&mut &frame[..kept.min(frame.len() - 1)], &mut Vec::new());
            prop_assert!(matches!(result, Err(FrameError::Truncated { .. })), "{:?}", result);
        }

        #[test]
        fn arbitrary_bytes_never_hold_more_memory_than_came(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut reader = bytes.as_slice();
            let mut payload = Vec::new();
            while let Ok(true) = read(&mut reader, &mut payload) {}
            prop_assert!(payload.capacity() <= 2 * bytes.len() + 64);
        }
    }

    #[test]
    fn length_zero_and_above_the_limit_are_refused() {
        for length in [0, LARGEST as u32 + 1, u32::MAX] {
            let stream = [&length.to_be_bytes()[..], &[0; 16]].concat();
            assert!(
                matches!(read(&mut stream.as_slice(), &mut Vec::new()), Err(FrameError::Length(seen)) if seen == length)
            );
        }
    }

    #[test]
    fn the_largest_frame_passes_and_one_byte_more_does_not() {
        let mut frame = vec![7; 4 + LARGEST];
        assert!(seal(&mut frame));
        let mut payload = Vec::new();
        assert!(read(&mut frame.as_slice(), &mut payload).unwrap());
        assert_eq!(payload.len(), LARGEST);
        assert!(!seal(&mut vec![7; 5 + LARGEST]));
        assert!(!seal(&mut [0; 4]));
    }

    #[test]
    fn a_huge_announcement_without_bytes_allocates_next_to_nothing() {
        let stream = (LARGEST as u32).to_be_bytes();
        let mut payload = Vec::new();
        assert!(matches!(read(&mut stream.as_slice(), &mut payload), Err(FrameError::Truncated { .. })));
        assert!(payload.capacity() < 1024);
    }
}
