// The terminal of memcgctl top: draws pictures, takes keys, follows the terminal's size (ncurses).
//
// Thread safety: SetPicture() and SetError() from any thread; all else from one.  There is one TopScreen in a
// process.
#ifndef MEMCGD_CLIENT_MEMCGCTL_TOP_SCREEN_H_
#define MEMCGD_CLIENT_MEMCGCTL_TOP_SCREEN_H_

#include <atomic>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "client/memcgctl_top_table.h"

namespace memcgd::client {

// Whether standard input and output are a terminal that can be drawn on; says what to do instead.
absl::Status CheckTerminal();

class TopScreen {
 public:
  // REQUIRES: CheckTerminal().
  TopScreen(const std::string& sort, bool tree);
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;
  // For whoever ends the process in another way.
  static void RestoreTerminal();

  void SetPicture(TopPicture picture);
  // Stands below the last picture until the next one.
  void SetError(const std::string& text);

  // Until the user quits, or `cancelled`.
  void Run(const std::atomic<bool>& cancelled);

 private:
  void Draw();
  // False: quit.
  bool Take(int key);
  void MoveColumn(int by);

  std::mutex mu_;  // guards what follows
  TopPicture picture_;
  std::string error_;
  bool changed_ = true;

  // The drawing thread's.
  TopColumn column_;
  bool descending_;
  bool tree_;
  size_t first_row_ = 0;
};

}  // namespace memcgd::client

#endif  // MEMCGD_CLIENT_MEMCGCTL_TOP_SCREEN_H_
