//! What an interface can do with XDP frames, as the kernel tells since version 6.3 (generic netlink, family `netdev`).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use failure::{Failure, checked};

/// The interface sends frames that an XDP program redirects to it.
pub(crate) const TRANSMITS_REDIRECTED: u64 = 1 << 2;

const CONTROL_FAMILY: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;

/// Length of the headers of netlink and of generic netlink.
const HEADERS: usize = 20;

/// The set of features; `None` where the kernel does not tell.
pub(crate) fn of_interface(interface: u32) -> Result<Option<u64>, Failure> {
    let socket = open()?;
    let Some(family) = ask(&socket, CONTROL_FAMILY, GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)? else {
        return Ok(None);
    };
    let family = u16::from_ne_bytes([family[0], *family.get(1).unwrap_or(&0)]);
    let features = ask(&socket, family, GET_DEVICE, DEVICE_INDEX, &interface.to_ne_bytes(), DEVICE_FEATURES)?;
    Ok(features.and_then(|value| value.try_into().ok()).map(u64::from_ne_bytes))
}

fn open() -> Result<OwnedFd, Failure> {
    // SAFETY: makes a descriptor, which nobody else owns.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC);
        Ok(OwnedFd::from_raw_fd(checked(socket, "opening a netlink socket")?))
    }
}

/// Sends a request with one attribute; the wanted attribute of the answer, `None` when it is refused or holds none.
fn ask(
    socket: &OwnedFd,
    family: u16,
    command: u8,
    attribute: u16,
    value: &[u8],
    wanted: u16,
) -> Result<Option<Vec<u8>>, Failure> {
    let attribute_length = 4 + value.len();
    let length = HEADERS + attribute_length.next_multiple_of(4);
    let mut request = Vec::with_capacity(length);
    request.extend((length as u32).to_ne_bytes());
    request.extend(family.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend([0; 8]);
    request.extend([command, 1, 0, 0]);
    request.extend((attribute_length as u16).to_ne_bytes());
    request.extend(attribute.to_ne_bytes());
    request.extend(value);
    request.resize(length, 0);
    let mut answer = [0u8; 16384];
    // SAFETY: reads the request and fills the answer within their bounds.
    let received = unsafe {
        let sent = libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0);
        checked(sent, "asking the kernel what an interface can do")?;
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    let received = checked(received, "hearing what an interface can do")? as usize;
    Ok(attribute_of(&answer[..received], family, wanted))
}

/// An attribute of the first message.
fn attribute_of(answer: &[u8], family: u16, wanted: u16) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u16::from_ne_bytes([*answer.get(at)?, *answer.get(at + 1)?]));
    let length = (u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?) as usize).min(answer.len());
    if word(4)? != family {
        return None;
    }
    let mut at = HEADERS;
    while at + 4 <= length {
        let attribute_length = usize::from(word(at)?);
        if attribute_length < 4 || at + attribute_length > length {
            return None;
        }
        if word(at + 2)? == wanted {
            let value = &answer[at + 4..at + attribute_length];
            return (!value.is_empty()).then(|| value.to_vec());
        }
        at += attribute_length.next_multiple_of(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_kernel_answers_is_an_attribute_or_none() {
        fuzz::fuzz("netdev", include_str!("../../fuzz/corpus/netdev.txt"), |input| {
            for family in [CONTROL_FAMILY, 27] {
                for wanted in [FAMILY_ID, DEVICE_FEATURES] {
                    let value = attribute_of(input, family, wanted);
                    assert!(value.is_none_or(|value| !value.is_empty() && value.len() < input.len()));
                }
            }
        });
    }

    #[test]
    fn the_loopback_interface_has_features_where_the_kernel_tells() {
        let loopback = crate::interface::index_of("lo").unwrap();
        // None before 6.3.
        let features = of_interface(loopback).unwrap();
        assert!(features.is_none_or(|features| features & TRANSMITS_REDIRECTED == 0), "{features:?}");
        assert_eq!(of_interface(u32::MAX / 2).unwrap(), None);
    }
}
