#pragma once

#include <string>

#include "lockstep/data/element.h"
#include "lockstep/fwd.h"

// NumPy's files. Of bool, int8 to int64, uint8, float16 to float64, complex64 and complex128.

namespace lockstep::data {

// The array of a .npy file. Its memory is the file's own, mapped: nothing is read before it is used, and what is written to the
// tensor does not reach the file. Arrays in Fortran order are copied. Do not cut the file while the tensor lives; to replace it
// (write_npy) is fine.
// Throws kNotFound when there is no such file, kFailedPrecondition when it may not be read, kDataLoss when it is damaged, or
// shorter or longer than its header says, kUnimplemented for values of other types and big-endian ones.
at::Tensor read_npy(const std::string& path);

// Writes a tensor, of any device and strides, as a .npy file. It is written beside `path` and then renamed: a crash leaves no
// half file. Throws kInvalidArgument for a tensor that NumPy has no type for, kFailedPrecondition when the folder is not there
// or may not be written to, kUnavailable when the disk is full.
void write_npy(const std::string& path, const at::Tensor& tensor);

// The arrays of a .npz file, stored or compressed: a component each, in the archive's order, named as in numpy.savez(). Throws
// as read_npy(), and kUnimplemented where Lockstep was built without minizip (Debian: libminizip-dev).
Element read_npz(const std::string& path);

}  // namespace lockstep::data
