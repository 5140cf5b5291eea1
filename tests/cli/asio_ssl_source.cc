// The program's server compiles Asio's bodies once, without those of its TLS part, which only the
// tests' download hub uses.
#include <boost/asio/ssl/impl/src.hpp>
