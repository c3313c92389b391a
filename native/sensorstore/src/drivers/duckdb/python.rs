//! What DuckDB's library, being an extension of Python, must find when it is loaded: the symbols of Python that it refers
//! to other than by calls.  Calls are bound as they are made, and none is made through the C interface.  Nothing reads or
//! writes what is behind these names; there is room because they stand for structures.

use std::hint::black_box;

macro_rules! names {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            static $name: [u128; 256] = [0; 256];
        )*

        /// Keeps the names in the executable; build.rs makes them visible to what is loaded.
        pub(super) fn keep() {
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
