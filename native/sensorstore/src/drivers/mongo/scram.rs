//! The client's end of SCRAM-SHA-256 (RFC 5802, RFC 7677), without channel binding.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::failure::{Failure, Kind};

/// The fewest rounds of hashing that RFC 7677 lets a client accept.
const FEWEST_ITERATIONS: u32 = 4096;
/// The most that are taken part in: a second or so; servers ask for 15,000.
const MOST_ITERATIONS: u32 = 1_000_000;

/// An authentication that has been begun.
pub(super) struct Scram {
    password: String,
    nonce: String,
    first_bare: String,
}

/// The proof that answers the server's first message, and the server's own that has to follow.
pub(super) struct Proof {
    /// The client's final message.
    pub(super) message: String,
    /// The signature that only a server that knows the password can give.
    signature: String,
}

impl Scram {
    /// Begins, with a nonce of the kernel's.
    ///
    /// # Errors
    /// `denied` for a password that may not be one.
    pub(super) fn new(user: &str, password: &str) -> Result<Self, Failure> {
        let mut random = [0; 24];
        let filled = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random));
        filled.map_err(|error| Failure::new(Kind::Database, format!("no random numbers: {error}")))?;
        Self::with_nonce(user, password, BASE64.encode(random))
    }

    fn with_nonce(user: &str, password: &str, nonce: String) -> Result<Self, Failure> {
        let password = stringprep::saslprep(password).map(Cow::into_owned);
        let password = password.map_err(|error| denied(&format!("the password: {error}")))?;
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        Ok(Self { password, nonce, first_bare })
    }

    /// The client's first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.first_bare)
    }

    /// Answers the server's first message.
    ///
    /// # Errors
    /// `denied` where it is not such a message, or of a server that would weaken the password.
    pub(super) fn answer(&self, server_first: &str) -> Result<Proof, Failure> {
        let field = |name: &str| server_first.split(',').find_map(|field| field.strip_prefix(name));
        let (Some(nonce), Some(salt), Some(iterations)) = (field("r="), field("s="), field("i=")) else {
            return Err(denied("the server's first message lacks a field"));
        };
        if !nonce.starts_with(&self.nonce) || nonce == self.nonce {
            return Err(denied("the server's nonce does not continue ours"));
        }
        let salt = BASE64.decode(salt).map_err(|_| denied("the server's salt is not base64"))?;
        let iterations = iterations.parse().unwrap_or(0);
        if iterations < FEWEST_ITERATIONS {
            return Err(denied("the server asks for too few iterations"));
        }
        if iterations > MOST_ITERATIONS {
            return Err(denied(&format!("the server asks for {iterations} iterations; at most {MOST_ITERATIONS} are done")));
        }
        let salted = salted_password(self.password.as_bytes(), &salt, iterations);
        let client_key = hmac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = hmac(&Sha256::digest(client_key), signed.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, signature)| key ^ signature).collect();
        let server = hmac(&hmac(&salted, b"Server Key"), signed.as_bytes());
        let message = format!("{without_proof},p={}", BASE64.encode(proof));
        Ok(Proof { message, signature: BASE64.encode(server) })
    }
}

impl Proof {
    /// That the server knows the password as well.
    ///
    /// # Errors
    /// `denied` where it does not.
    pub(super) fn check(&self, server_final: &str) -> Result<(), Failure> {
        match server_final.strip_prefix("v=") {
            Some(signature) if signature == self.signature => Ok(()),
            _ => Err(denied("the server does not prove that it knows the password")),
        }
    }
}

fn denied(what: &str) -> Failure {
    Failure::new(Kind::Denied, format!("SCRAM-SHA-256: {what}"))
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(message);
    mac.finalize().into_bytes().into()
}

/// `Hi` of RFC 5802, section 2.2.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = Hmac::<Sha256>::new_from_slice(password).expect("HMAC takes keys of any length");
    let mut round: [u8; 32] =
        keyed.clone().chain_update(salt).chain_update([0, 0, 0, 1]).finalize().into_bytes().into();
    let mut result = round;
    for _ in 1..iterations {
        round = keyed.clone().chain_update(round).finalize().into_bytes().into();
        result.iter_mut().zip(round).for_each(|(result, round)| *result ^= round);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange in RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_rfc_is_reproduced() {
        let scram = Scram::with_nonce("user", "pencil", "rOprNGfwEbeRWgbNEkqO".into()).unwrap();
        assert_eq!(scram.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let proof = scram.answer(server_first).unwrap();
        assert_eq!(
            proof.message,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(proof.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert_eq!(proof.check("v=AAAA").unwrap_err().kind, Kind::Denied);
    }

    #[test]
    fn a_server_that_would_weaken_the_password_is_refused() {
        let scram = Scram::with_nonce("user", "pencil", "abc".into()).unwrap();
        for first in ["r=abcd,s=AAAA,i=1", "r=xyz,s=AAAA,i=4096", "r=abc,s=AAAA,i=4096", "e=other-error"] {
            assert_eq!(scram.answer(first).err().unwrap().kind, Kind::Denied);
        }
    }

    #[test]
    fn a_server_that_asks_for_hours_of_hashing_is_refused_at_once() {
        let scram = Scram::with_nonce("user", "pencil", "abc".into()).unwrap();
        let refusal = scram.answer("r=abcd,s=AAAA,i=4294967295").err().unwrap();
        assert_eq!(refusal.kind, Kind::Denied);
        assert!(refusal.message.contains("4294967295 iterations"), "{}", refusal.message);
    }
}
