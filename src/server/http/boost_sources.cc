// The bodies of Asio and Beast, compiled here only.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
