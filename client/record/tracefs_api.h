// libtracefs for C++: its header (1.6) is C, and one of its inline functions passes 0 for an enum.
#ifndef MEMCGD_CLIENT_RECORD_TRACEFS_API_H_
#define MEMCGD_CLIENT_RECORD_TRACEFS_API_H_

struct tracefs_instance;
struct tracefs_hist;
// What that 0 is taken for; never called.
inline int tracefs_hist_command(tracefs_instance*, tracefs_hist*, int) { return -1; }

extern "C" {
#include <tracefs.h>
}

#endif  // MEMCGD_CLIENT_RECORD_TRACEFS_API_H_
