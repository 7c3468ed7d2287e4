//! The hash of a certificate that SCRAM is bound to: by the function of the certificate's own signature, SHA-256 where
//! that is MD5 or SHA-1 (RFC 5929, section 4.1). All that has to be read of the certificate is the name of its signature
//! algorithm, so there is no need for a parser of certificates.

use sha2::{Digest, Sha256, Sha384, Sha512};

/// 1.2.840.113549.1.1: RSA with PKCS #1 padding.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// 1.2.840.10045.4: ECDSA.
const ECDSA: [u8; 6] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// `None` where the certificate cannot be read, or where its signature names no one hash (Ed25519, RSA-PSS).
pub(crate) fn hash(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_algorithm(certificate)?;
    let is = |family: &[u8], ends: &[&[u8]]| {
        algorithm.strip_prefix(family).is_some_and(|rest| ends.contains(&rest))
    };
    // MD5, SHA-1 and SHA-256 with RSA; SHA-1 and SHA-256 with ECDSA.
    if is(&RSA, &[&[4], &[5], &[11]]) || is(&ECDSA, &[&[1], &[3, 2]]) {
        Some(Sha256::digest(certificate).to_vec())
    } else if is(&RSA, &[&[12]]) || is(&ECDSA, &[&[3, 3]]) {
        Some(Sha384::digest(certificate).to_vec())
    } else if is(&RSA, &[&[13]]) || is(&ECDSA, &[&[3, 4]]) {
        Some(Sha512::digest(certificate).to_vec())
    } else {
        None
    }
}

/// `Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, .. }, .. }`.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (body, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(body, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    Some(element(algorithm, OBJECT_IDENTIFIER)?.0)
}

/// The contents of the first element, which must have this tag, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let wrap = |tag: u8, body: &[u8]| {
            let mut out = vec![tag, 0x82];
            out.extend_from_slice(&(body.len() as u16).to_be_bytes());
            out.extend_from_slice(body);
            out
        };
        let signed = wrap(SEQUENCE, &[5; 300]);
        let name = wrap(SEQUENCE, &wrap(OBJECT_IDENTIFIER, algorithm));
        wrap(SEQUENCE, &[signed, name, wrap(3, &[0; 64])].concat())
    }

    #[test]
    fn the_signature_decides_the_hash() {
        let length =
            |family: &[u8], end: &[u8]| hash(&certificate(&[family, end].concat())).map(|hash| hash.len());
        assert_eq!((length(&RSA, &[5]), length(&RSA, &[11])), (Some(32), Some(32)), "SHA-1 is replaced");
        assert_eq!((length(&RSA, &[12]), length(&RSA, &[13])), (Some(48), Some(64)));
        assert_eq!((length(&ECDSA, &[3, 2]), length(&ECDSA, &[3, 3])), (Some(32), Some(48)));
        assert_eq!((length(&RSA, &[10]), length(&[0x2b, 0x65, 0x70], &[])), (None, None), "PSS, Ed25519");
    }

    #[test]
    fn a_broken_certificate_has_none() {
        let whole = certificate(&[RSA.as_slice(), &[11]].concat());
        assert!(hash(&whole).is_some());
        for end in 0..whole.len() {
            assert_eq!(hash(&whole[..end]), None, "{end}");
        }
        assert_eq!(hash(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(hash(&[0x30, 0x80]), None);
    }
}
