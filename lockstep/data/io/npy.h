#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// NumPy's .npy format, versions 1.0 to 3.0: a magic string, a header in Python's notation, then the values.

namespace lockstep::data::internal {

struct NpyHeader {
  std::string type = "";  // as NumPy writes it, without the order of bytes: "f4"; one of npy_types()
  std::size_t value_bytes = 0;
  bool is_fortran_order = false;
  std::vector<std::int64_t> sizes = {};
  std::size_t header_bytes = 0;  // the values begin there
  std::size_t data_bytes = 0;    // of all values together
};

// b1, i1 .. i8, u1, f2 .. f8, c8 and c16: bool, int8 .. int64, uint8, float16 .. float64, complex64 and complex128.
const std::vector<std::string>& npy_types();

// In all of these `where` names the array in messages: "the file 'a.npy'".

// How long the header is, by the first 12 bytes. Throws kDataLoss when they are not those of a .npy file, kUnimplemented for a
// version after 3.0.
std::size_t npy_header_bytes(std::string_view begin, const std::string& where);

// Reads the header at the beginning of `bytes`; the values need not be there. Throws as npy_header_bytes(); kDataLoss for a
// header that is cut off, cannot be read, or asks for an impossible size; kUnimplemented for values of another type or
// big-endian ones.
NpyHeader parse_npy_header(std::string_view bytes, const std::string& where);

// Throws kDataLoss unless the values are as long as the header says.
void check_npy_size(const NpyHeader& header, std::uint64_t data_bytes, const std::string& where);

// The header, version 1.0, of values of this type in C order.
std::string make_npy_header(const std::string& type, const std::vector<std::int64_t>& sizes);

}  // namespace lockstep::data::internal
