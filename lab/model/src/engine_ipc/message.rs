//! What fronts and the core say to each other. vLLM sends pickled objects over ZeroMQ; what a scheduler sees is a message.

use std::io;

/// Bytes of a message.
pub(super) const SIZE: usize = 16;

/// From a front: this connection wants so many tokens. From the core: it gets one, and so many are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    /// The connection's index at its front.
    pub(super) connection: u64,
    /// Tokens to come.
    pub(super) tokens: u64,
}

impl Message {
    /// It as bytes.
    pub(super) fn bytes(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.connection.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.tokens.to_ne_bytes());
        bytes
    }

    /// All that were read at once. Both sides write whole messages and read room for several, so none comes in parts.
    pub(super) fn all(bytes: &[u8]) -> io::Result<impl Iterator<Item = Self>> {
        if bytes.len() % SIZE != 0 {
            return Err(io::Error::other(format!("a message came in parts: {} bytes", bytes.len())));
        }
        let number = |half: &[u8]| half.try_into().map_or(0, u64::from_ne_bytes);
        Ok(bytes.chunks_exact(SIZE).map(move |m| Self { connection: number(&m[..8]), tokens: number(&m[8..]) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let sent = [Message { connection: 1, tokens: 2 }, Message { connection: 3, tokens: 0 }];
        let bytes: Vec<u8> = sent.iter().flat_map(|message| message.bytes()).collect();
        assert_eq!(Message::all(&bytes).expect("whole").collect::<Vec<_>>(), sent);
        assert!(Message::all(&bytes[1..]).is_err());
    }
}
