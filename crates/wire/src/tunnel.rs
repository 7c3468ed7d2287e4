//! A transport with what lies between it and the packets: TLS (rustls, driven by poll functions) and MySQL's compression.

use std::io::{self, Read, Write};
use std::task::{Context, Poll, ready};

use rustls::ClientConnection;

use crate::error::Error;
use crate::mysql::compression::Compression;
use crate::target::Target;
use crate::tls;
use crate::tls::{closed_in_handshake, end_point, handshake_error, handshake_io};
use crate::transport::Transport;

/// A transport, bare or not.
pub(crate) struct Tunnel<T> {
    transport: T,
    /// `None` most often: what is measured most goes straight through.
    layers: Option<Box<Layers>>,
}

/// From the transport upwards.
#[derive(Default)]
struct Layers {
    tls: Option<ClientConnection>,
    compression: Option<Compression>,
}

impl<T> std::fmt::Debug for Tunnel<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tunnel").field("is_bare", &self.layers.is_none()).finish_non_exhaustive()
    }
}

impl<T: Transport> Tunnel<T> {
    /// Nothing between.
    pub(crate) fn plain(transport: T) -> Tunnel<T> {
        Tunnel { transport, layers: None }
    }

    pub(crate) fn transport(&self) -> &T {
        &self.transport
    }

    pub(crate) fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Whether what is written may be held back until [`Tunnel::poll_flush`].
    pub(crate) fn holds_back(&self) -> bool {
        self.layers.is_some()
    }

    fn session(&self) -> Option<&ClientConnection> {
        self.layers.as_ref()?.tls.as_ref()
    }

    /// TLS version and cipher suite.
    pub(crate) fn description(&self) -> Option<String> {
        let session = self.session()?;
        let version = session.protocol_version()?;
        let suite = session.negotiated_cipher_suite()?.suite();
        Some(format!("{} {}", version.as_str().unwrap_or("TLS"), suite.as_str().unwrap_or("unknown")))
    }

    /// Hash of the server's certificate as `tls-server-end-point` wants it (RFC 5929, section 4.1).
    pub(crate) fn end_point_hash(&self) -> Option<Vec<u8>> {
        let certificate = self.session()?.peer_certificates()?.first()?;
        end_point::hash(certificate)
    }

    /// Shakes hands.
    pub(crate) async fn start_tls(&mut self, target: &Target) -> Result<(), Error> {
        self.layers.get_or_insert_default().tls = Some(tls::begin(target)?);
        std::future::poll_fn(|cx| self.poll_handshake(cx)).await
    }

    /// From here on packets are compressed, both ways.
    pub(crate) fn start_compression(&mut self) {
        self.layers.get_or_insert_default().compression = Some(Compression::new());
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut answered = false;
        loop {
            ready!(self.poll_flush(cx)).map_err(|error| handshake_io(error, answered))?;
            let Some(session) = self.layers.as_mut().and_then(|layers| layers.tls.as_mut()) else {
                return Poll::Ready(Ok(()));
            };
            if !session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            let mut stream = Stream { transport: &mut self.transport, cx };
            match session.read_tls(&mut stream) {
                Ok(0) => return Poll::Ready(Err(closed_in_handshake(answered))),
                Ok(_) => answered = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(handshake_io(error, answered))),
            }
            if let Err(error) = session.process_new_packets() {
                // The alert tells the server why; whether it arrives does not matter any more.
                let _ = self.poll_flush(cx);
                return Poll::Ready(Err(handshake_error(&error)));
            }
        }
    }

    /// As [`Transport::poll_read`].
    #[inline(always)]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.layers {
            None => self.transport.poll_read(cx, buf),
            Some(layers) => layers.poll_read(&mut self.transport, cx, buf),
        }
    }

    /// As [`Transport::poll_write`]; what is held back goes out with [`Tunnel::poll_flush`].
    #[inline(always)]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.layers {
            None => self.transport.poll_write(cx, buf),
            Some(layers) => layers.poll_write(&mut self.transport, cx, buf),
        }
    }

    /// Sends everything that is held back.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.layers {
            None => Poll::Ready(Ok(())),
            Some(layers) => layers.poll_flush(&mut self.transport, cx),
        }
    }
}

/// So much is read at once when it is to be inflated.
const COMPRESSED_BYTES: usize = 16 * 1024;

/// Reading and writing stand out of line: their buffers must not lie in the stack frames of what goes straight through.
impl Layers {
    #[cold]
    #[inline(never)]
    fn poll_read<T: Transport>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(compression) = &mut self.compression {
                let count = compression.take(buf);
                if count > 0 {
                    return Poll::Ready(Ok(count));
                }
            } else {
                return self.poll_read_below(transport, cx, buf);
            }
            let mut compressed = [0; COMPRESSED_BYTES];
            let count = ready!(self.poll_read_below(transport, cx, &mut compressed))?;
            match &mut self.compression {
                Some(compression) if count > 0 => compression
                    .feed(&compressed[..count])
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?,
                _ => return Poll::Ready(Ok(0)),
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_write<T: Transport>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.compression {
            Some(compression) => {
                compression.push(buf);
                Poll::Ready(Ok(buf.len()))
            }
            None => self.poll_write_below(transport, cx, buf),
        }
    }

    fn poll_flush<T: Transport>(&mut self, transport: &mut T, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Taken out for as long as what lies below it writes.
        let Some(mut compression) = self.compression.take() else {
            return self.poll_flush_below(transport, cx);
        };
        compression.seal();
        let flushed = loop {
            if compression.unsent().is_empty() {
                break self.poll_flush_below(transport, cx);
            }
            match self.poll_write_below(transport, cx, compression.unsent()) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => compression.note_sent(count),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        self.compression = Some(compression);
        flushed
    }

    fn poll_read_below<T: Transport>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Some(session) = &mut self.tls else { return transport.poll_read(cx, buf) };
        loop {
            match session.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that closes without saying so: the end of the stream, as on plain TCP.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                other => return Poll::Ready(other),
            }
            let mut stream = Stream { transport, cx };
            match session.read_tls(&mut stream) {
                Ok(0) => return Poll::Ready(Ok(0)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
            session.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }

    fn poll_write_below<T: Transport>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush_below(transport, cx))?;
        match &mut self.tls {
            Some(session) => Poll::Ready(session.writer().write(buf)),
            None => transport.poll_write(cx, buf),
        }
    }

    fn poll_flush_below<T: Transport>(
        &mut self,
        transport: &mut T,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(session) = &mut self.tls else { return Poll::Ready(Ok(())) };
        while session.wants_write() {
            let mut stream = Stream { transport, cx };
            match session.write_tls(&mut stream) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// What rustls reads from and writes to.
struct Stream<'a, 'c, T> {
    transport: &'a mut T,
    cx: &'a mut Context<'c>,
}

impl<T: Transport> Read for Stream<'_, '_, T> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.transport.poll_read(self.cx, buf) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<T: Transport> Write for Stream<'_, '_, T> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.transport.poll_write(self.cx, buf) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
