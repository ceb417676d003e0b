//! Serializing without a silent change: an error tells where in the value it arose, and what BSON would make into something else is one.
//!
//! `Some(None)` and `Some(())` are the values that serde itself cannot tell from `None` on the way back. Everything else that BSON cannot
//! hold it refuses by itself, but without the place.

use std::cell::RefCell;

use bson::Bson;
use serde::{
    Serialize, Serializer,
    ser::{
        Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
        SerializeTuple, SerializeTupleStruct, SerializeTupleVariant,
    },
};

/// The way to the error, from the inside to the outside; empty while there is none.
#[derive(Default)]
pub(super) struct Trail(RefCell<Vec<String>>);

impl Trail {
    /// Where the error arose, such as `items[3].price`; `None` if it is the value itself.
    pub(super) fn place(&self) -> Option<String> {
        let parts = self.0.borrow();
        let place: String = parts.iter().rev().map(String::as_str).collect();
        let place = place.strip_prefix('.').unwrap_or(&place);
        (!place.is_empty()).then(|| place.to_owned())
    }

    fn note<T, E>(&self, result: Result<T, E>, part: impl FnOnce() -> String) -> Result<T, E> {
        if result.is_err() {
            self.0.borrow_mut().push(part());
        }
        result
    }
}

/// A value that is serialized strictly.
pub(super) struct Strict<'t, T: ?Sized> {
    value: &'t T,
    trail: &'t Trail,
    /// Whether it stands in a `Some`.
    in_some: bool,
}

impl<'t, T: ?Sized> Strict<'t, T> {
    pub(super) fn new(value: &'t T, trail: &'t Trail) -> Self {
        Self {
            value,
            trail,
            in_some: false,
        }
    }
}

impl<T: Serialize + ?Sized> Serialize for Strict<'_, T> {
    fn serialize<S: Serializer>(&self, inner: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Watched {
            inner,
            trail: self.trail,
            in_some: self.in_some,
        })
    }
}

/// A serializer, or a part of one, in front of another.
struct Watched<'t, S> {
    inner: S,
    trail: &'t Trail,
    in_some: bool,
}

/// A list, a map or a struct that is being serialized.
struct Inside<'t, S> {
    inner: S,
    trail: &'t Trail,
    count: usize,
}

impl<'t, S> Watched<'t, S> {
    fn inside<I>(self, open: impl FnOnce(S) -> I) -> (I, &'t Trail) {
        (open(self.inner), self.trail)
    }
}

fn opened<S, E>((inner, trail): (Result<S, E>, &Trail)) -> Result<Inside<'_, S>, E> {
    Ok(Inside {
        inner: inner?,
        trail,
        count: 0,
    })
}

impl<S: Serializer> Watched<'_, S> {
    /// A value that has nothing in it.
    fn nothing(
        self,
        what: &str,
        write: impl FnOnce(S) -> Result<S::Ok, S::Error>,
    ) -> Result<S::Ok, S::Error> {
        if self.in_some {
            return Err(S::Error::custom(format!(
                "`Some({what})` would come back as `None`"
            )));
        }
        write(self.inner)
    }
}

macro_rules! as_they_are {
    ($($method:ident: $type:ty),+ $(,)?) => {$(
        fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        }
    )+};
}

impl<'t, S: Serializer> Serializer for Watched<'t, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Inside<'t, S::SerializeSeq>;
    type SerializeTuple = Inside<'t, S::SerializeTuple>;
    type SerializeTupleStruct = Inside<'t, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Inside<'t, S::SerializeTupleVariant>;
    type SerializeMap = Inside<'t, S::SerializeMap>;
    type SerializeStruct = Inside<'t, S::SerializeStruct>;
    type SerializeStructVariant = Inside<'t, S::SerializeStructVariant>;

    as_they_are! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128, serialize_f32: f32,
        serialize_f64: f64, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.nothing("None", Serializer::serialize_none)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&Strict {
            value,
            trail: self.trail,
            in_some: true,
        })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.nothing("()", Serializer::serialize_unit)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<S::Ok, S::Error> {
        self.nothing(name, |inner| inner.serialize_unit_struct(name))
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = Strict {
            value,
            trail: self.trail,
            in_some: self.in_some,
        };
        self.inner.serialize_newtype_struct(name, &value)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = Strict::new(value, self.trail);
        let result = self
            .inner
            .serialize_newtype_variant(name, index, variant, &value);
        self.trail.note(result, || format!(".{variant}"))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        opened(self.inside(|inner| inner.serialize_seq(len)))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        opened(self.inside(|inner| inner.serialize_tuple(len)))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        opened(self.inside(|inner| inner.serialize_tuple_struct(name, len)))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        opened(self.inside(|inner| inner.serialize_tuple_variant(name, index, variant, len)))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        opened(self.inside(|inner| inner.serialize_map(len)))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        opened(self.inside(|inner| inner.serialize_struct(name, len)))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        opened(self.inside(|inner| inner.serialize_struct_variant(name, index, variant, len)))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! items {
    ($($kind:ident: $method:ident),+ $(,)?) => {$(
        impl<S: $kind> $kind for Inside<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let index = self.count;
                self.count += 1;
                let result = self.inner.$method(&Strict::new(value, self.trail));
                self.trail.note(result, || format!("[{index}]"))
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        }
    )+};
}

items! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

macro_rules! fields {
    ($($kind:ident),+) => {$(
        impl<S: $kind> $kind for Inside<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                let result = self.inner.serialize_field(name, &Strict::new(value, self.trail));
                self.trail.note(result, || format!(".{name}"))
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        }
    )+};
}

fields!(SerializeStruct, SerializeStructVariant);

impl<S: SerializeMap> SerializeMap for Inside<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.count += 1;
        let count = self.count;
        let result = self.inner.serialize_key(key);
        self.trail.note(result, || format!("[key number {count}]"))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let count = self.count;
        let result = self.inner.serialize_value(&Strict::new(value, self.trail));
        self.trail
            .note(result, || format!("[value number {count}]"))
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), S::Error> {
        self.serialize_key(key)?;
        let result = self.inner.serialize_value(&Strict::new(value, self.trail));
        let count = self.count;
        self.trail
            .note(result, || match bson::serialize_to_bson(key) {
                Ok(Bson::String(name)) => format!(".{name}"),
                _ => format!("[value number {count}]"),
            })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}
