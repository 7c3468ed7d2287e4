//! Signatures in the format of `ssh-keygen -Y sign`, by the SSH keys that people have already.

use std::path::Path;

use rsa::sha2::{Digest, Sha512};
use rsa::{BigUint, Pkcs1v15Sign, RsaPrivateKey};
use ssh_key::private::{KeypairData, RsaKeypair};
use ssh_key::{Algorithm, HashAlg, LineEnding, PrivateKey, PublicKey, Signature, SshSig};

use super::BundleError;

/// What the signature is for: `ssh-keygen -Y verify -n plimsoll-bundle` wants the same.
pub const NAMESPACE: &str = "plimsoll-bundle";

/// A private key that can sign.
#[derive(Debug)]
pub struct SigningKey(PrivateKey);

impl SigningKey {
    /// Reads OpenSSH's file; `passphrase` opens one that is protected.
    ///
    /// # Errors
    /// It cannot be read, is no private key, or the passphrase is missing or wrong.
    pub fn read(path: &Path, passphrase: Option<&str>) -> Result<SigningKey, BundleError> {
        let fail = |why: &dyn std::fmt::Display| BundleError::Key(format!("{}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| fail(&error))?;
        if text.starts_with("ssh-") {
            return Err(fail(&"it is a public key: name the private one, without .pub"));
        }
        let key = PrivateKey::from_openssh(&text)
            .map_err(|error| fail(&format_args!("it is no private key of OpenSSH's format ({error})")))?;
        if !key.is_encrypted() {
            return Ok(SigningKey(key));
        }
        let passphrase = passphrase.ok_or_else(|| {
            fail(&"it is protected by a passphrase: put that into the environment as PLIMSOLL_KEY_PASSPHRASE")
        })?;
        let opened =
            key.decrypt(passphrase).map_err(|_| fail(&"PLIMSOLL_KEY_PASSPHRASE does not open it"))?;
        Ok(SigningKey(opened))
    }

    /// The signature of a manifest, as text.
    ///
    /// # Errors
    /// The key is of a kind that cannot sign here.
    pub fn sign(&self, manifest: &[u8]) -> Result<Vec<u8>, BundleError> {
        let fail = |error: ssh_key::Error| BundleError::Key(format!("the key cannot sign: {error}"));
        let signature = match self.0.key_data() {
            KeypairData::Rsa(pair) => self.sign_by_rsa(pair, manifest),
            _ => self.0.sign(NAMESPACE, HashAlg::Sha512, manifest),
        };
        let signature = signature.map_err(fail)?;
        Ok(signature.to_pem(LineEnding::LF).map_err(fail)?.into_bytes())
    }

    /// As OpenSSH does it, `rsa-sha2-512`. By hand: `ssh_key` 0.6 makes the key of its first prime twice.
    fn sign_by_rsa(&self, pair: &RsaKeypair, manifest: &[u8]) -> ssh_key::Result<SshSig> {
        let key = RsaPrivateKey::from_components(
            BigUint::try_from(&pair.public.n)?,
            BigUint::try_from(&pair.public.e)?,
            BigUint::try_from(&pair.private.d)?,
            vec![BigUint::try_from(&pair.private.p)?, BigUint::try_from(&pair.private.q)?],
        )?;
        let signed = SshSig::signed_data(NAMESPACE, HashAlg::Sha512, manifest)?;
        let bytes = key.sign(Pkcs1v15Sign::new::<Sha512>(), &Sha512::digest(signed))?;
        let signature = Signature::new(Algorithm::Rsa { hash: Some(HashAlg::Sha512) }, bytes)?;
        SshSig::new(self.0.public_key().key_data().clone(), NAMESPACE, HashAlg::Sha512, signature)
    }
}

/// The fingerprint of the key that signed a manifest, as `ssh-keygen -l` shows it; `None`: the signature is not of this
/// manifest, or is none.
pub fn signer_of(manifest: &[u8], signature: &[u8]) -> Option<String> {
    let signature = SshSig::from_pem(signature).ok()?;
    let key = PublicKey::from(signature.public_key().clone());
    key.verify(NAMESPACE, manifest, &signature).ok()?;
    Some(key.fingerprint(HashAlg::Sha256).to_string())
}
