// SPDX-License-Identifier: Apache-2.0
//! Request and transfer of an object on a stream: the client sends the object's length as eight
//! bytes, most significant first, and the server sends that many bytes.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const CHUNK: usize = 64 * 1024;
static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Requests an object and passes on the length of each part that arrives. Returns its length.
pub async fn fetch(
    mut send: impl AsyncWrite + Unpin,
    mut receive: impl AsyncRead + Unpin,
    length: u64,
    mut on_part: impl FnMut(usize),
) -> io::Result<u64> {
    send.write_all(&length.to_be_bytes()).await?;
    send.shutdown().await?;
    let mut buffer = vec![0; CHUNK];
    let mut received = 0;
    loop {
        let part = receive.read(&mut buffer).await?;
        if part == 0 {
            return Ok(received);
        }
        received += part as u64;
        on_part(part);
    }
}

/// Reads a request and sends the object.
pub async fn serve(
    mut send: impl AsyncWrite + Unpin,
    mut receive: impl AsyncRead + Unpin,
) -> io::Result<()> {
    let mut length = [0; 8];
    receive.read_exact(&mut length).await?;
    let mut rest = u64::from_be_bytes(length);
    while rest > 0 {
        let chunk = usize::try_from(rest).unwrap_or(usize::MAX).min(CHUNK);
        send.write_all(&ZEROS[..chunk]).await?;
        rest -= chunk as u64;
    }
    send.shutdown().await
}
