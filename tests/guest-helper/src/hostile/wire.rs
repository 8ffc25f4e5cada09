//! Frames as they stand on the port. Encodes whatever it is given and judges nothing: what breaks a
//! rule is built here as well as what keeps it.

use std::fs::File;
use std::io::{self, Read as _};

use forebay_exec_proto::frame::FromGuest;
use forebay_exec_proto::{HEADER_LEN, Header, Stream};
use minicbor::Encode;

/// Flag of the host: last part of a request.
pub(super) const LAST: u8 = 0x01;
/// Flag of the guest: whoever does not know the kind may skip the frame.
pub(super) const OPTIONAL: u8 = 0x80;

/// What a Started says: there is no process behind it.
pub(super) const PID: [u8; 4] = 1_u32.to_le_bytes();

/// A frame of the host.
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) body: Vec<u8>,
}

/// Reads the host's next frame.
pub(super) fn read(mut port: &File) -> io::Result<Frame> {
    let mut head = [0; HEADER_LEN];
    port.read_exact(&mut head)?;
    let header = Header::decode(&head);
    let mut body = vec![0; header.len as usize];
    port.read_exact(&mut body)?;
    Ok(Frame { header, body })
}

/// The number that is a whole body.
pub(super) fn number(body: &[u8]) -> io::Result<u64> {
    let bytes = body
        .try_into()
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    Ok(u64::from_le_bytes(bytes))
}

/// A header of `kind` that announces `length` bytes.
pub(super) fn header(kind: u8, exec: u64, length: usize) -> Header {
    Header {
        len: u32::try_from(length).unwrap_or(u32::MAX),
        kind,
        flags: 0,
        reserved: 0,
        exec,
    }
}

/// Any header before any payload.
pub(super) fn raw(header: Header, payload: &[u8]) -> Vec<u8> {
    [&header.encode()[..], payload].concat()
}

/// A frame whose header tells the truth about its length.
pub(super) fn frame(kind: FromGuest, exec: u64, payload: &[u8]) -> Vec<u8> {
    raw(header(kind.to_wire(), exec, payload.len()), payload)
}

/// A chunk of output.
pub(super) fn output(exec: u64, stream: Stream, bytes: &[u8]) -> Vec<u8> {
    let kind = match stream {
        Stream::Stdout => FromGuest::Stdout,
        Stream::Stderr => FromGuest::Stderr,
    };
    frame(kind, exec, bytes)
}

/// An acknowledgement of stdin.
pub(super) fn stdin_ack(exec: u64, total: u64) -> Vec<u8> {
    frame(FromGuest::StdinAck, exec, &total.to_le_bytes())
}

/// A body that is more than a number.
pub(super) fn body<T: Encode<()>>(body: &T) -> Vec<u8> {
    minicbor::to_vec(body).expect("a vector takes everything")
}
