//! Connections to the server that a tool loads.

use crate::ToolError;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Connects; `patience` bounds the try.
pub(crate) fn connect(address: SocketAddr, patience: Option<Duration>) -> Result<TcpStream, ToolError> {
    let tried = match patience {
        Some(patience) => TcpStream::connect_timeout(&address, patience),
        None => TcpStream::connect(address),
    };
    tried.map_err(|why| match why.kind() {
        ErrorKind::ConnectionRefused => ToolError::Refused { address },
        _ => ToolError::System { what: format!("connect to {address}"), source: why },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_refused_connection_names_the_address() {
        // Bound, then closed: nobody listens there now.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for patience in [None, Some(Duration::from_secs(1))] {
            let why = connect(address, patience).unwrap_err().to_string();
            assert!(why.starts_with(&format!("{address} refused the connection")), "{why}");
        }
    }
}
