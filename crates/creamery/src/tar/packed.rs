//! Compressed archives: their first bytes show the compression.

use std::io::{self, BufRead, Read};

use creamery_base::{Error, Result};
use flate2::bufread::GzDecoder;
use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// Magic numbers, names of the formats, and programs that decompress them.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (b"\xfd7zXZ\0", "xz", "xz -dc"),
    (b"BZh", "bzip2", "bzip2 -dc"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc"),
    (b"LZIP", "lzip", "lzip -dc"),
];
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const BEGINNING: usize = 6;
const BUFFER: usize = 128 << 10;

/// Decompresses gzip and zstd, and passes on everything else as it is.
pub(super) fn unpacked<'a>(mut input: Box<dyn Read + 'a>) -> Result<Box<dyn Read + 'a>> {
    let mut first = Vec::new();
    let reading = |error| Error::from(error).on_host(std::path::Path::new("reading the archive"));
    input.by_ref().take(BEGINNING as u64).read_to_end(&mut first).map_err(reading)?;
    if let Some((_, name, program)) = OTHERS.iter().find(|(beginning, ..)| first.starts_with(beginning)) {
        let what = format!(
            "an archive packed with {name}; unpack it and give - as its name: `{program} FILE | creamery ...`"
        );
        return Err(Error::unsupported(what));
    }
    let whole = io::Cursor::new(first.clone()).chain(input);
    Ok(match &first[..] {
        first if first.starts_with(GZIP) => {
            let whole = io::BufReader::with_capacity(BUFFER, whole);
            Box::new(Gunzip { member: Some(GzDecoder::new(whole)) })
        }
        first if first.starts_with(ZSTD) => Box::new(Unzstd::new(whole)),
        _ => Box::new(io::BufReader::with_capacity(BUFFER, whole)),
    })
}

/// A stream of gzip members. Other data behind them is ignored, as by gzip(1): tapes end with it.
struct Gunzip<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Gunzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            let mut rest = self.member.take().expect("it was just read from").into_inner();
            // One byte shows whether another member follows.
            if rest.fill_buf()?.first() == GZIP.first() {
                self.member = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// A stream of zstd frames. The decoder rejects a frame with a window of more than 128 MiB.
struct Unzstd<R> {
    input: R,
    context: DCtx<'static>,
    buffer: Vec<u8>,
    /// The part of the buffer that is not yet decompressed.
    at: usize,
    filled: usize,
    /// Whether the stream may end here.
    is_between_frames: bool,
}

impl<R: Read> Unzstd<R> {
    fn new(input: R) -> Self {
        let context = DCtx::create();
        Self { input, context, buffer: vec![0; BUFFER], at: 0, filled: 0, is_between_frames: true }
    }
}

impl<R: Read> Read for Unzstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let mut output = OutBuffer::around(out);
            let mut input = InBuffer::around(&self.buffer[self.at..self.filled]);
            let left = self.context.decompress_stream(&mut output, &mut input);
            let left = left.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "damaged zstd data"))?;
            let (made, taken) = (output.pos(), input.pos());
            self.at += taken;
            if taken > 0 || made > 0 {
                self.is_between_frames = left == 0;
            }
            if made > 0 {
                return Ok(made);
            }
            if self.at == self.filled {
                (self.at, self.filled) = (0, self.input.read(&mut self.buffer)?);
                if self.filled == 0 && self.is_between_frames {
                    return Ok(0);
                }
                if self.filled == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
