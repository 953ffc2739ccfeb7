//! New data gets space and goes there: packed, where that makes it shorter, or as it is.

use creamery_base::{ErrorKind, Result};

use super::data_source::DataSource;
use super::ordered_extent::OrderedExtent;
use super::packing::{Chunk, Packing};
use super::reserve_source::{For, ReserveSource};
use crate::inode::InodeFlags;

/// Writes the front of `[start, stop)` of `payload` into space of its own. `packing` becomes `None` where later data of the file is
/// not to be packed.
/// Errors: no space; device errors; those of the payload.
pub(super) fn new_extent(
    behalf: &mut ReserveSource<'_>,
    file: &For<'_>,
    packing: &mut Option<Packing<'_>>,
    payload: &dyn DataSource,
    (start, stop): (u64, u64),
) -> Result<OrderedExtent> {
    let engine = file.engine;
    let (mut end, mut marks) = (stop, InodeFlags::empty());
    match packing.as_mut().map(|packing| packing.next(payload, (start, stop))).transpose()? {
        None => {}
        Some(Chunk::Packed { end: packed_end, packed }) => {
            let range = (start, packed_end);
            match OrderedExtent::allocate_packed(behalf, file, range, &packed) {
                Ok(mut ordered) => {
                    if let Some(packing) = packing {
                        packing.stored(range.1 - range.0, &packed);
                    }
                    ordered.write(engine, &packed.bytes)?;
                    return Ok(ordered);
                }
                // There may be room for it in several pieces. Asking again for each chunk would cost a commit each. A rewrite of
                // existing data fails instead: it packs the data, or leaves it as it is.
                Err(error)
                    if error.kind() == ErrorKind::NoSpace
                        && !matches!(behalf, ReserveSource::Rearranging) =>
                {
                    (end, *packing) = (packed_end, None);
                }
                Err(error) => return Err(error),
            }
        }
        Some(Chunk::Plain { end: plain_end, gives_up }) => {
            end = plain_end;
            if gives_up {
                *packing = None;
                marks = InodeFlags::NOCOMPRESS;
            }
        }
    }
    let ordered = OrderedExtent::allocate_new(behalf, file, start, end - start)?;
    let mut ordered = ordered.marking(marks);
    payload.write((start, ordered.end()), &mut ordered.writer(engine))?;
    Ok(ordered)
}
