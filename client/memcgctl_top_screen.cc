#include "client/memcgctl_top_screen.h"

#include <curses.h>
#include <term.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace memcgd::client {
namespace {

constexpr int kKeyWaitMs = 100;
constexpr int kLinesAround = 3;  // the node, the columns' names, the keys
constexpr char kKeys[] = " < > sort   r reverse   t tree   arrows, PgUp, PgDn scroll   q quit";

}  // namespace

absl::Status CheckTerminal() {
  constexpr char kInstead[] = "--once and --batch print tables";
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0)
    return absl::FailedPreconditionError(absl::StrCat("no terminal: ", kInstead));
  int known = 0;
  const char* const kind = std::getenv("TERM");
  if (setupterm(nullptr, STDOUT_FILENO, &known) == ERR || cursor_address == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a terminal of kind ", kind == nullptr ? "unknown" : kind, " cannot be drawn on: ", kInstead));
  }
  return absl::OkStatus();
}

TopScreen::TopScreen(const std::string& sort, bool tree)
    : column_(ColumnOf(sort)), descending_(column_ != TopColumn::kCgroup), tree_(tree) {
  std::setlocale(LC_CTYPE, "");
  initscr();
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
  timeout(kKeyWaitMs);
}

TopScreen::~TopScreen() { RestoreTerminal(); }

void TopScreen::RestoreTerminal() { endwin(); }

void TopScreen::SetPicture(TopPicture picture) {
  std::lock_guard<std::mutex> lock(mu_);
  picture_ = std::move(picture);
  error_.clear();
  changed_ = true;
}

void TopScreen::SetError(const std::string& text) {
  std::lock_guard<std::mutex> lock(mu_);
  error_ = text;
  changed_ = true;
}

void TopScreen::Run(const std::atomic<bool>& cancelled) {
  while (!cancelled) {
    Draw();
    const int key = getch();
    if (key != ERR && !Take(key)) return;
  }
}

bool TopScreen::Take(int key) {
  std::lock_guard<std::mutex> lock(mu_);
  changed_ = true;
  const auto page = static_cast<size_t>(std::max(1, LINES - kLinesAround));
  switch (key) {
    case 'q':
      return false;
    case '<':
    case KEY_LEFT:
      MoveColumn(-1);
      break;
    case '>':
    case KEY_RIGHT:
      MoveColumn(1);
      break;
    case 'r':
      descending_ = !descending_;
      break;
    case 't':
      tree_ = !tree_;
      break;
    case KEY_UP:
      first_row_ -= first_row_ > 0 ? 1 : 0;
      break;
    case KEY_DOWN:
      ++first_row_;
      break;
    case KEY_PPAGE:
      first_row_ -= std::min(first_row_, page);
      break;
    case KEY_NPAGE:
      first_row_ += page;
      break;
    case KEY_HOME:
      first_row_ = 0;
      break;
    default:  // KEY_RESIZE: it is drawn anew
      break;
  }
  return true;
}

void TopScreen::MoveColumn(int by) {
  const auto count = static_cast<int>(kTopColumns);
  column_ = static_cast<TopColumn>((static_cast<int>(column_) + by + count) % count);
  descending_ = column_ != TopColumn::kCgroup;
}

void TopScreen::Draw() {
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(changed_, false)) return;
  Order(column_, descending_, tree_, &picture_);
  const auto room = static_cast<size_t>(std::max(0, LINES - kLinesAround));
  first_row_ = std::min(first_row_, picture_.rows.size() - std::min(picture_.rows.size(), room));
  erase();
  mvaddnstr(0, 0, NodeLine(picture_).c_str(), COLS);
  int at = 0;
  for (size_t i = 0; i < kTopColumns && at < COLS; ++i) {
    const auto column = static_cast<TopColumn>(i);
    const std::string head(ColumnHead(column));
    const auto width = static_cast<int>(ColumnWidth(column) == 0 ? head.size() + 2 : ColumnWidth(column));
    const std::string text = absl::StrCat(column == column_ ? (descending_ ? "v" : "^") : "", head);
    if (column == column_) attron(A_REVERSE);
    mvaddnstr(1, at + std::max(0, width - static_cast<int>(text.size())), text.c_str(), COLS - at);
    attroff(A_REVERSE);
    at += width;
  }
  for (size_t i = 0; i < room && first_row_ + i < picture_.rows.size(); ++i)
    mvaddnstr(static_cast<int>(i) + 2, 0, RowLine(picture_.rows[first_row_ + i], tree_).c_str(), -1);
  attron(A_REVERSE);
  mvaddnstr(LINES - 1, 0, error_.empty() ? kKeys : error_.c_str(), COLS);
  attroff(A_REVERSE);
  refresh();
}

}  // namespace memcgd::client
