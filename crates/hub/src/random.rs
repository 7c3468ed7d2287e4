//! What nobody can foresee.

use std::io::Read;

use crate::error::Error;

/// Bytes drawn by the system.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut drawn = [0_u8; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut drawn))
        .map_err(|source| Error::File { what: "/dev/urandom".to_owned(), source })?;
    Ok(drawn)
}

/// So many bytes as a word of hexadecimal digits.
pub(crate) fn word<const N: usize>() -> Result<String, Error> {
    Ok(bytes::<N>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// From 0 up to, and without, 1.
pub(crate) fn share() -> Result<f64, Error> {
    Ok((u64::from_le_bytes(bytes()?) >> 11) as f64 / (1_u64 << 53) as f64)
}
