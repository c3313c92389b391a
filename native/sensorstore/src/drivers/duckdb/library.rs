//! DuckDB's C interface, as it is in a library that is loaded at run time.

use std::ffi::{CStr, CString, c_char, c_void};
use std::hint::black_box;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::failure::{Failure, Kind};

/// Any of the interface's handles.
pub(super) type Handle = *mut c_void;

/// `duckdb_type` of the columns.
pub(super) const BIGINT: u32 = 5;
/// Likewise.
pub(super) const DOUBLE: u32 = 11;
/// Likewise.
pub(super) const UUID: u32 = 27;

/// `duckdb_uhugeint`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Unsigned128 {
    pub(super) lower: u64,
    pub(super) upper: u64,
}

/// `duckdb_result`: passed by value where chunks are fetched.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct QueryResult([usize; 6]);

impl QueryResult {
    pub(super) const fn empty() -> Self {
        Self([0; 6])
    }
}

macro_rules! interface {
    ($($name:ident: fn($($argument:ty),*) $(-> $answer:ty)?;)*) => {
        /// The functions of the interface that are used, named as there without `duckdb_`.
        pub(super) struct Interface {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)*
            /// Stays loaded as long as its functions are known.
            _library: Library,
        }

        impl Interface {
            fn of(library: Library) -> Result<Self, libloading::Error> {
                $(
                    let name = concat!("duckdb_", stringify!($name), "\0").as_bytes();
                    // SAFETY: the types are those of duckdb.h.
                    let $name = *unsafe { library.get::<unsafe extern "C" fn($($argument),*) $(-> $answer)?>(name)? };
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}

interface! {
    library_version: fn() -> *const c_char;
    open_ext: fn(*const c_char, *mut Handle, Handle, *mut *mut c_char) -> u32;
    close: fn(*mut Handle);
    connect: fn(Handle, *mut Handle) -> u32;
    disconnect: fn(*mut Handle);
    query: fn(Handle, *const c_char, *mut QueryResult) -> u32;
    destroy_result: fn(*mut QueryResult);
    result_error: fn(*mut QueryResult) -> *const c_char;
    prepare: fn(Handle, *const c_char, *mut Handle) -> u32;
    prepare_error: fn(Handle) -> *const c_char;
    destroy_prepare: fn(*mut Handle);
    bind_int64: fn(Handle, u64, i64) -> u32;
    bind_double: fn(Handle, u64, f64) -> u32;
    bind_value: fn(Handle, u64, Handle) -> u32;
    create_uuid: fn(Unsigned128) -> Handle;
    destroy_value: fn(*mut Handle);
    execute_prepared: fn(Handle, *mut QueryResult) -> u32;
    fetch_chunk: fn(QueryResult) -> Handle;
    create_logical_type: fn(u32) -> Handle;
    destroy_logical_type: fn(*mut Handle);
    create_data_chunk: fn(*mut Handle, u64) -> Handle;
    destroy_data_chunk: fn(*mut Handle);
    data_chunk_reset: fn(Handle);
    data_chunk_get_size: fn(Handle) -> u64;
    data_chunk_set_size: fn(Handle, u64);
    data_chunk_get_vector: fn(Handle, u64) -> Handle;
    vector_get_data: fn(Handle) -> *mut c_void;
    vector_size: fn() -> u64;
    appender_create: fn(Handle, *const c_char, *const c_char, *mut Handle) -> u32;
    append_data_chunk: fn(Handle, Handle) -> u32;
    appender_flush: fn(Handle) -> u32;
    appender_error: fn(Handle) -> *const c_char;
    appender_destroy: fn(*mut Handle) -> u32;
    free: fn(*mut c_void);
}

// What DuckDB's library, being an extension of Python, must find when it is loaded: the symbols of Python that it refers
// to other than by calls.  Calls are bound as they are made, and none is made through the C interface.  Nothing reads or
// writes what is behind these names; there is room because they stand for structures.
macro_rules! names {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            static $name: [u128; 256] = [0; 256];
        )*

        /// Keeps the names in the executable; build.rs makes them visible to what is loaded.
        fn keep_names() {
            $(black_box(&raw const $name);)*
        }
    };
}

names! {
    PyBaseObject_Type PyBool_Type PyByteArray_Type PyBytes_Type PyCFunction_Type PyCapsule_Type PyDict_Type
    PyExc_AttributeError PyExc_BufferError PyExc_Exception PyExc_ImportError PyExc_IndexError PyExc_KeyError
    PyExc_MemoryError PyExc_ModuleNotFoundError PyExc_NotImplementedError PyExc_OverflowError PyExc_ResourceWarning
    PyExc_RuntimeError PyExc_RuntimeWarning PyExc_StopIteration PyExc_SystemError PyExc_TypeError
    PyExc_UnicodeEncodeError PyExc_ValueError PyFloat_Type PyList_Type PyLong_Type PyMemoryView_Type PyModule_Type
    PyObject_GenericGetDict PyObject_GenericSetDict PyObject_Vectorcall PyObject_VectorcallMethod PyProperty_Type
    PyTuple_Type PyType_GenericNew PyType_Type PyUnicode_Type PyVectorcall_Call Py_GenericAlias Py_GenericAliasType
    _PyWeakref_RefType _Py_FalseStruct _Py_NoneStruct _Py_NotImplementedStruct _Py_TrueStruct
}

impl Interface {
    /// Loads the library.
    pub(super) fn load(path: &Path) -> Result<Arc<Self>, Failure> {
        keep_names();
        // SAFETY: DuckDB's initialization; it calls nothing of Python.
        let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
        let interface = library.and_then(Self::of);
        let unfit = |error| Failure::new(Kind::Unsupported, format!("DuckDB cannot be loaded: {error}"));
        interface.map(Arc::new).map_err(unfit)
    }

    /// Text of the interface's.
    pub(super) fn text(pointer: *const c_char) -> String {
        if pointer.is_null() {
            return "it does not say why".into();
        }
        // SAFETY: what the interface gives ends with a zero and lives until the next call, which is after this copy.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    }

    /// Opens a database file, or makes it.
    pub(super) fn open(self: &Arc<Self>, path: &Path) -> Result<Arc<Database>, Failure> {
        let path = c_string(&path.to_string_lossy())?;
        let (mut handle, mut message) = (null_mut(), null_mut());
        // SAFETY: all pointers are to values of ours that live on.
        if unsafe { (self.open_ext)(path.as_ptr(), &raw mut handle, null_mut(), &raw mut message) } == 0 {
            return Ok(Arc::new(Database { interface: Arc::clone(self), handle }));
        }
        let failure = failure(&Self::text(message));
        // SAFETY: the message was given to us to free.
        unsafe { (self.free)(message.cast()) };
        Err(failure)
    }
}

/// Text as the interface takes it.
pub(super) fn c_string(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| Failure::new(Kind::BadRequest, "a name holds a zero byte"))
}

/// What DuckDB says, by kind.
pub(super) fn failure(said: &str) -> Failure {
    let first = said.lines().next().unwrap_or_default();
    let kind = if said.contains("No space left") || said.contains("max_temp_directory_size") {
        Kind::Full
    } else if said.contains("Conflicting lock") {
        Kind::Refused
    } else if said.contains("Permission denied") || said.contains("read-only") {
        Kind::Denied
    } else if said.contains("does not exist")
        || said.contains("not a valid DuckDB")
        || said.contains("Cannot open file")
    {
        Kind::Schema
    } else {
        Kind::Database
    };
    Failure::new(kind, format!("DuckDB: {first}"))
}

/// An open database; closed with its last user.
pub(super) struct Database {
    pub(super) interface: Arc<Interface>,
    handle: Handle,
}

// SAFETY: a database may be used by several threads; each of ours has a connection of its own.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Drop for Database {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once.
        unsafe { (self.interface.close)(&raw mut self.handle) };
    }
}

/// A connection.
pub(super) struct Connection {
    pub(super) database: Arc<Database>,
    pub(super) handle: Handle,
}

// SAFETY: used by one thread at a time, whichever that is.
unsafe impl Send for Connection {}

impl Connection {
    pub(super) fn open(database: &Arc<Database>) -> Result<Self, Failure> {
        let mut handle = null_mut();
        // SAFETY: the database is open; the handle is ours.
        if unsafe { (database.interface.connect)(database.handle, &raw mut handle) } != 0 {
            return Err(Failure::new(Kind::Database, "DuckDB gives no connection"));
        }
        Ok(Self { database: Arc::clone(database), handle })
    }

    pub(super) fn interface(&self) -> &Interface {
        &self.database.interface
    }

    /// Runs statements and hands each chunk of the answer on.
    pub(super) fn query(&self, sql: &str, each: &mut dyn FnMut(&Chunk)) -> Result<(), Failure> {
        let sql = c_string(sql)?;
        let mut result = QueryResult::empty();
        // SAFETY: the connection is open; the result is ours.
        let state = unsafe { (self.interface().query)(self.handle, sql.as_ptr(), &raw mut result) };
        self.take(state, result, each)
    }

    /// Hands the chunks of a result on, and destroys it.
    pub(super) fn take(
        &self,
        state: u32,
        mut result: QueryResult,
        each: &mut dyn FnMut(&Chunk),
    ) -> Result<(), Failure> {
        let interface = self.interface();
        let done = if state == 0 {
            loop {
                // SAFETY: a result that has not been destroyed.
                let handle = unsafe { (interface.fetch_chunk)(result) };
                if handle.is_null() {
                    break Ok(());
                }
                each(&Chunk { interface, handle });
            }
        } else {
            // SAFETY: as above.
            Err(failure(&Interface::text(unsafe { (interface.result_error)(&raw mut result) })))
        };
        // SAFETY: destroyed once.
        unsafe { (interface.destroy_result)(&raw mut result) };
        done
    }

    /// The first column of the first row, which has to be a BIGINT.
    pub(super) fn number(&self, sql: &str) -> Result<i64, Failure> {
        let mut number = None;
        self.query(sql, &mut |chunk| {
            // SAFETY: the statement's first column is a BIGINT.
            number = number.or(unsafe { chunk.column::<i64>(0) }.first().copied());
        })?;
        number.ok_or_else(|| Failure::new(Kind::Database, "DuckDB: no row was answered"))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; the database is open still.
        unsafe { (self.database.interface.disconnect)(&raw mut self.handle) };
    }
}

/// Rows of a result.
pub(super) struct Chunk<'a> {
    interface: &'a Interface,
    handle: Handle,
}

impl Chunk<'_> {
    /// A column's values.
    ///
    /// # Safety
    /// The column is of this type and holds no NULL.
    pub(super) unsafe fn column<T: Copy>(&self, number: u64) -> &[T] {
        // SAFETY: the chunk has not been destroyed; its vectors are flat and as long as it says.
        unsafe {
            let rows = (self.interface.data_chunk_get_size)(self.handle) as usize;
            let vector = (self.interface.data_chunk_get_vector)(self.handle, number);
            std::slice::from_raw_parts((self.interface.vector_get_data)(vector).cast::<T>(), rows)
        }
    }
}

impl Drop for Chunk<'_> {
    fn drop(&mut self) {
        // SAFETY: given to us once, destroyed once.
        unsafe { (self.interface.destroy_data_chunk)(&raw mut self.handle) };
    }
}
