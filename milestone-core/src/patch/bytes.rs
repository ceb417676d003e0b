//! Patches and documents in their encoded form. What a patch does not name is copied byte by byte, so that a step costs little more than
//! a copy of the document: nothing is decoded, and nothing is encoded again.

use bson::{
    Bson, RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf,
    raw::{RawElement, RawIter, cstr},
    spec::ElementType,
};

use super::{Patch, PathError, ReportChange};

/// Why a patch cannot be applied to an encoded document.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The document is not one that the patch can have been made for.
    #[error(transparent)]
    NoSuchPath(#[from] PathError),
    /// The bytes are no document.
    #[error("the stored bytes are no document: {0}")]
    Malformed(String),
    /// A value of the patch cannot be encoded.
    #[error("a value cannot be stored: {0}")]
    Value(String),
}

/// What a patch does in one document, in the order in which new fields are added.
type Edits<'p> = Vec<(&'p str, Edit<'p>)>;

enum Edit<'p> {
    Set(&'p Bson),
    /// A list in its place.
    Replace(&'p [Bson]),
    /// These in front of the list that is there.
    Push(&'p [Bson]),
    Rev(i64),
    Unset,
    Inside(Edits<'p>),
}

impl Patch {
    /// Applies it to an encoded document, as [`Patch::apply_to`] does to a document in memory, byte for byte, and sets `rev`.
    ///
    /// ```
    /// # use bson::{DateTime, Document, doc};
    /// # use milestone_core::{graph::Action, lease::claim, limits::Limits, machine::NewMilestone, record::{Lease, MilestoneRecord}};
    /// # let (now, limits) = (DateTime::from_millis(0), Limits::new());
    /// # let plan = Action::new("debit").into_plan(|_| None).unwrap();
    /// # let mut record = MilestoneRecord::new(NewMilestone::new("Transfer", plan), now, &limits).unwrap();
    /// # let lease = Lease { owner: "w".into(), token: "t".into(), since: now, until: now };
    /// let mut document = record.to_document()?;
    /// let bytes = document.to_vec()?;
    /// let patch = claim(&mut record, lease);
    ///
    /// patch.apply_to(&mut document, 2)?;
    /// assert_eq!(patch.apply_to_bytes(&bytes, 2)?, document.to_vec()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PatchError`] if the document is not one that the patch can have been made for, or is none.
    pub fn apply_to_bytes(&self, document: &[u8], rev: i64) -> Result<Vec<u8>, PatchError> {
        let document = RawDocument::from_bytes(document).map_err(malformed)?;
        // What is added seldom takes more.
        let mut writer = Writer(Vec::with_capacity(
            document.as_bytes().len() + self.size() + 256,
        ));
        writer.edited(document, self.edits(rev), "")?;
        Ok(writer.0)
    }

    /// [`Patch::to_update`] in the form in which it is sent.
    ///
    /// # Errors
    /// [`PatchError::Value`] if a value of the patch cannot be encoded.
    pub fn to_raw_update(&self, rev: i64) -> Result<RawDocumentBuf, PatchError> {
        let mut writer = Writer(Vec::with_capacity(self.size() + 512));
        let update = writer.begin();
        if let ReportChange::Push(attempts) = &self.report {
            let push = writer.document("$push")?;
            let report = writer.document("report")?;
            writer.list("$each", attempts)?;
            writer.value("$position", &Bson::Int32(0))?;
            writer.end(report);
            writer.end(push);
        }
        let set = writer.document("$set")?;
        for (path, value) in &self.set {
            writer.value(path, value)?;
        }
        writer.value("rev", &Bson::Int64(rev))?;
        if let ReportChange::Replace(report) = &self.report {
            writer.list("report", report)?;
        }
        writer.end(set);
        if !self.unset.is_empty() {
            let unset = writer.document("$unset")?;
            for path in &self.unset {
                writer.value(path, &Bson::Boolean(true))?;
            }
            writer.end(unset);
        }
        writer.end(update);
        RawDocumentBuf::from_bytes(writer.0).map_err(|error| PatchError::Value(error.to_string()))
    }

    fn edits(&self, rev: i64) -> Edits<'_> {
        let mut edits = Vec::with_capacity(8);
        for (path, value) in &self.set {
            put(&mut edits, path, Edit::Set(value));
        }
        for path in &self.unset {
            put(&mut edits, path, Edit::Unset);
        }
        match &self.report {
            ReportChange::None => {}
            ReportChange::Push(attempts) => put(&mut edits, "report", Edit::Push(attempts)),
            ReportChange::Replace(report) => put(&mut edits, "report", Edit::Replace(report)),
        }
        put(&mut edits, "rev", Edit::Rev(rev));
        edits
    }
}

fn put<'p>(edits: &mut Edits<'p>, path: &'p str, edit: Edit<'p>) {
    let Some((first, rest)) = path.split_once('.') else {
        return edits.push((path, edit));
    };
    let place = edits
        .iter()
        .position(|(key, edit)| *key == first && matches!(edit, Edit::Inside(_)));
    let place = place.unwrap_or_else(|| {
        edits.push((first, Edit::Inside(Vec::with_capacity(4))));
        edits.len() - 1
    });
    if let Edit::Inside(inside) = &mut edits[place].1 {
        put(inside, rest, edit);
    }
}

/// A path that leads nowhere: the first of those below this one.
fn nowhere(at: &str, edits: &Edits<'_>) -> PatchError {
    let mut path = at.to_owned();
    let mut edits = edits;
    while let Some((key, edit)) = edits.first() {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        match edit {
            Edit::Inside(inside) => edits = inside,
            _ => break,
        }
    }
    PathError { path }.into()
}

fn below(at: &str, key: &str) -> String {
    if at.is_empty() {
        key.to_owned()
    } else {
        format!("{at}.{key}")
    }
}

fn malformed(error: impl std::fmt::Display) -> PatchError {
    PatchError::Malformed(error.to_string())
}

fn unstorable(error: impl std::fmt::Display) -> PatchError {
    PatchError::Value(error.to_string())
}

/// The elements of a document with their bytes.
struct Elements<'d> {
    bytes: &'d [u8],
    iter: RawIter<'d>,
    at: usize,
}

impl<'d> Elements<'d> {
    fn of(document: &'d RawDocument) -> Self {
        Self {
            bytes: document.as_bytes(),
            iter: document.iter_elements(),
            at: 4,
        }
    }
}

impl<'d> Iterator for Elements<'d> {
    type Item = Result<(RawElement<'d>, &'d [u8]), PatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let element = match self.iter.next()? {
            Ok(element) => element,
            Err(error) => return Some(Err(malformed(error))),
        };
        // The type, the key with its end, the value.
        let end = self.at + 1 + element.key().len() + 1 + element.size();
        let bytes = self.bytes.get(self.at..end);
        self.at = end;
        Some(
            bytes
                .map(|bytes| (element, bytes))
                .ok_or_else(|| malformed("it ends in the middle of a field")),
        )
    }
}

/// Writes BSON.
struct Writer(Vec<u8>);

impl Writer {
    /// Begins a document or a list, and gives its place.
    fn begin(&mut self) -> usize {
        let place = self.0.len();
        self.0.extend([0; 4]);
        place
    }

    fn end(&mut self, place: usize) {
        self.0.push(0);
        let size = u32::try_from(self.0.len() - place).unwrap_or(u32::MAX);
        self.0[place..place + 4].copy_from_slice(&size.to_le_bytes());
    }

    fn key(&mut self, kind: ElementType, key: &str) -> Result<(), PatchError> {
        if key.contains('\0') {
            return Err(unstorable(format!("the key {key:?} holds a null byte")));
        }
        self.0.push(kind as u8);
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(0);
        Ok(())
    }

    fn document(&mut self, key: &str) -> Result<usize, PatchError> {
        self.key(ElementType::EmbeddedDocument, key)?;
        Ok(self.begin())
    }

    fn list(&mut self, key: &str, items: &[Bson]) -> Result<(), PatchError> {
        self.key(ElementType::Array, key)?;
        let place = self.begin();
        for (index, item) in items.iter().enumerate() {
            self.value(&index.to_string(), item)?;
        }
        self.end(place);
        Ok(())
    }

    fn value(&mut self, key: &str, value: &Bson) -> Result<(), PatchError> {
        match value {
            Bson::Array(items) => return self.list(key, items),
            other => self.key(other.element_type(), key)?,
        }
        match value {
            Bson::Int32(number) => self.0.extend(number.to_le_bytes()),
            Bson::Int64(number) => self.0.extend(number.to_le_bytes()),
            Bson::Double(number) => self.0.extend(number.to_le_bytes()),
            Bson::DateTime(date) => self.0.extend(date.timestamp_millis().to_le_bytes()),
            Bson::Boolean(truth) => self.0.push(u8::from(*truth)),
            Bson::Null => {}
            Bson::String(text) => {
                let size = u32::try_from(text.len() + 1).map_err(unstorable)?;
                self.0.extend(size.to_le_bytes());
                self.0.extend_from_slice(text.as_bytes());
                self.0.push(0);
            }
            Bson::Document(document) => self.0.extend(document.to_vec().map_err(unstorable)?),
            other => {
                let other = RawBson::try_from(other.clone()).map_err(unstorable)?;
                let mut carrier = RawDocumentBuf::new();
                carrier.append(cstr!(""), other);
                // Behind the size, the type and the end of the empty key, before the end of the document.
                let bytes = carrier.as_bytes();
                self.0.extend_from_slice(&bytes[6..bytes.len() - 1]);
            }
        }
        Ok(())
    }

    /// Writes a document as the edits make it.
    fn edited(
        &mut self,
        document: &RawDocument,
        mut edits: Edits<'_>,
        at: &str,
    ) -> Result<(), PatchError> {
        let place = self.begin();
        let mut edited = Vec::with_capacity(edits.len());
        for element in Elements::of(document) {
            let (element, bytes) = element?;
            let key = element.key().as_str();
            if let Some(index) = edits.iter().position(|(name, _)| *name == key) {
                let (key, edit) = edits.remove(index);
                self.edit(key, edit, Some(element), at)?;
                edited.push(key);
            } else if !edited.contains(&key) {
                self.0.extend_from_slice(bytes);
            }
            // A field that is there twice, by hand, is there once from then on.
        }
        for (key, edit) in edits {
            self.edit(key, edit, None, at)?;
        }
        self.end(place);
        Ok(())
    }

    fn edit(
        &mut self,
        key: &str,
        edit: Edit<'_>,
        old: Option<RawElement<'_>>,
        at: &str,
    ) -> Result<(), PatchError> {
        match edit {
            Edit::Set(value) => self.value(key, value),
            Edit::Replace(items) => self.list(key, items),
            Edit::Rev(rev) => self.value(key, &Bson::Int64(rev)),
            Edit::Unset => Ok(()),
            Edit::Push(items) => match array(old)? {
                Some(old) => self.pushed(key, items, old),
                None => self.list(key, items),
            },
            Edit::Inside(edits) => {
                let at = below(at, key);
                let Some(old) = old else {
                    return Err(nowhere(&at, &edits));
                };
                match old.value().map_err(malformed)? {
                    RawBsonRef::Document(document) => {
                        self.key(ElementType::EmbeddedDocument, key)?;
                        self.edited(document, edits, &at)
                    }
                    RawBsonRef::Array(items) => {
                        self.key(ElementType::Array, key)?;
                        self.edited_list(items, edits, &at)
                    }
                    _ => Err(nowhere(&at, &edits)),
                }
            }
        }
    }

    /// Writes a list, of whose items some are edited.
    fn edited_list(
        &mut self,
        items: &RawArray,
        edits: Edits<'_>,
        at: &str,
    ) -> Result<(), PatchError> {
        let mut by_index: Vec<(usize, &str, Edits<'_>)> = Vec::with_capacity(edits.len());
        for (key, edit) in edits {
            match (key.parse(), edit) {
                (Ok(index), Edit::Inside(inside)) => by_index.push((index, key, inside)),
                (_, Edit::Inside(inside)) => return Err(nowhere(&below(at, key), &inside)),
                _ => {
                    return Err(PathError {
                        path: below(at, key),
                    }
                    .into());
                }
            }
        }
        let place = self.begin();
        for (index, element) in elements(items)?.enumerate() {
            let (element, bytes) = element?;
            let Some(edited) = by_index.iter().position(|(of, ..)| *of == index) else {
                self.0.extend_from_slice(bytes);
                continue;
            };
            let (_, key, inside) = by_index.swap_remove(edited);
            let at = below(at, key);
            let Some(document) = element.value().map_err(malformed)?.as_document() else {
                return Err(nowhere(&at, &inside));
            };
            self.key(ElementType::EmbeddedDocument, key)?;
            self.edited(document, inside, &at)?;
        }
        if let Some((_, key, inside)) = by_index.first() {
            return Err(nowhere(&below(at, key), inside));
        }
        self.end(place);
        Ok(())
    }

    /// Writes a list with others in front of it.
    fn pushed(&mut self, key: &str, items: &[Bson], old: &RawArray) -> Result<(), PatchError> {
        self.key(ElementType::Array, key)?;
        let place = self.begin();
        for (index, item) in items.iter().enumerate() {
            self.value(&index.to_string(), item)?;
        }
        for (index, element) in elements(old)?.enumerate() {
            let (element, bytes) = element?;
            self.key(element.element_type(), &(items.len() + index).to_string())?;
            self.0
                .extend_from_slice(&bytes[bytes.len() - element.size()..]);
        }
        self.end(place);
        Ok(())
    }
}

fn array(old: Option<RawElement<'_>>) -> Result<Option<&RawArray>, PatchError> {
    let value = old.map(|old| old.value().map_err(malformed)).transpose()?;
    Ok(value.and_then(RawBsonRef::as_array))
}

fn elements(list: &RawArray) -> Result<Elements<'_>, PatchError> {
    RawDocument::from_bytes(list.as_bytes())
        .map(Elements::of)
        .map_err(malformed)
}

#[cfg(test)]
mod tests;
