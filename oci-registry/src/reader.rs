//! Bytes of a blob for a copy, from a registry or from a layout.

use std::io::SeekFrom;

use bytes::{Bytes, BytesMut};
use oci_layout::{Blob, Layout, LayoutError};
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncSeekExt as _},
};

use super::{RegistryError, Source, blob::BlobReader};

/// Largest number of bytes that one read of a file returns.
const CHUNK: usize = 64 << 10;

/// Bytes of a blob in order, from an offset that the receiver can change.
pub(crate) enum Reader<'s> {
    Registry(Box<BlobReader<'s>>),
    Layout(FileReader),
}

/// Verified blob of a layout.
pub(crate) struct FileReader {
    file: File,
    /// Offset of the next byte for the caller.
    at: u64,
    /// True after a change of the offset.
    is_moved: bool,
}

impl<'s> Reader<'s> {
    pub(crate) async fn open(source: &'s Source, blob: &'s Blob) -> Result<Self, RegistryError> {
        match source {
            Source::Registry { endpoint, name } => {
                Ok(Reader::Registry(Box::new(BlobReader::new(endpoint, name, blob))))
            }
            Source::Layout(layout) => FileReader::open(layout, blob).await.map(Reader::Layout),
        }
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Reader::Registry(reader) => reader.offset(),
            Reader::Layout(reader) => reader.at,
        }
    }

    /// Continues at another offset.
    pub(crate) fn seek(&mut self, at: u64) {
        match self {
            Reader::Registry(reader) => reader.seek(at),
            Reader::Layout(reader) if at == reader.at => {}
            Reader::Layout(reader) => (reader.at, reader.is_moved) = (at, true),
        }
    }

    /// Returns the next bytes, or `None` after the last one.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        match self {
            Reader::Registry(reader) => reader.next().await,
            Reader::Layout(reader) => reader.next().await,
        }
    }
}

impl FileReader {
    async fn open(layout: &Layout, blob: &Blob) -> Result<FileReader, RegistryError> {
        let (layout, digest) = (layout.clone(), blob.digest.clone());
        // The verification reads the whole blob.
        let opened = tokio::task::spawn_blocking(move || layout.verified(&digest)).await;
        let file = opened.map_err(|error| RegistryError::Task(error.to_string()))??;
        Ok(FileReader { file: File::from_std(file), at: 0, is_moved: false })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let failed = |reason| LayoutError::Io { context: "cannot read a blob".into(), reason };
        if self.is_moved {
            self.file.seek(SeekFrom::Start(self.at)).await.map_err(failed)?;
            self.is_moved = false;
        }
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read = self.file.read_buf(&mut chunk).await.map_err(failed)?;
        self.at += read as u64;
        Ok((read > 0).then(|| chunk.freeze()))
    }
}
