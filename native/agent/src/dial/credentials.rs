//! The identity of one run: what the controller knows this agent by, and what the agent knows the controller by.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::failure::Failure;

const HEAD: &str = "virtgauge identity 1";
const EXPIRES: &str = "expires ";

/// Longest file that is read.
const LARGEST: u64 = 65_536;

/// Certificate and key of this agent, the authority that certified the controller, and until when all of it holds.
#[derive(Debug)]
pub struct Credentials {
    own: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    authority: CertificateDer<'static>,
    expires_s: u64,
}

impl Credentials {
    /// Reads the file, which nobody else may be able to read.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::bad_request(format!("the identity {}: {why}", path.display()));
        let mut file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!("others can read it (mode {mode:o}); chmod 600 {}", path.display())));
        }
        let mut text = String::new();
        (&mut file).take(LARGEST).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!(
                "it does not begin with the line {HEAD:?}: made by another version, or something else"
            ));
        }
        let expires = lines.next().and_then(|line| line.strip_prefix(EXPIRES));
        let expires_s =
            expires.and_then(|number| number.parse().ok()).ok_or("its second line does not say when it expires")?;
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let certificates = certificates.map_err(|error| format!("a certificate in it cannot be read: {error}"))?;
        let [own, authority] = <[CertificateDer<'static>; 2]>::try_from(certificates).map_err(|found| {
            format!("it holds {} certificates; due are the agent's and the authority's", found.len())
        })?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| format!("its private key cannot be read: {error}"))?;
        Ok(Self { own, key, authority, expires_s })
    }

    /// Whether it holds no longer, by this machine's clock.
    #[must_use]
    pub fn expired(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs() >= self.expires_s
    }

    /// TLS 1.3 and nothing older, both sides certified by the run's own authority; nothing is resumed or sent early.
    pub(super) fn configuration(&self) -> Result<ClientConfig, Failure> {
        let wrong = |error: rustls::Error| Failure::bad_request(format!("the identity cannot be used: {error}"));
        let mut authorities = RootCertStore::empty();
        authorities.add(self.authority.clone()).map_err(wrong)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut configuration = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_root_certificates(authorities)
            .with_client_auth_cert(vec![self.own.clone()], self.key.clone_key())
            .map_err(wrong)?;
        configuration.resumption = Resumption::disabled();
        Ok(configuration)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_no_identity_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "does not begin"),
            ("virtgauge identity 2\nexpires 1\n", "does not begin"),
            ("virtgauge identity 1\nexpires soon\n", "when it expires"),
            ("virtgauge identity 1\nexpires 1\n", "holds 0 certificates"),
        ] {
            let message = Credentials::parse(text).unwrap_err();
            assert!(message.contains(reason), "{message}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        let path = std::env::temp_dir().join(format!("virtgauge-identity-{}", std::process::id()));
        fs::write(&path, "virtgauge identity 1\nexpires 1\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let open = Credentials::read(&path).unwrap_err().to_string();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let closed = Credentials::read(&path).unwrap_err().to_string();
        fs::remove_file(&path).unwrap();
        assert!(open.contains("chmod 600"), "{open}");
        assert!(closed.contains("certificates"), "{closed}");
    }
}
