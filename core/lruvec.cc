#include "core/lruvec.h"

namespace memcgd::core {

void Lruvec::PushFront(FolioArena& arena, LruList which, FolioId id) {
  List& list = lists[static_cast<size_t>(which)];
  Folio& folio = arena.Get(id);
  folio.prev = FolioId::kNone;
  folio.next = list.head;
  if (list.head != FolioId::kNone) {
    arena.Get(list.head).prev = id;
  } else {
    list.tail = id;
  }
  list.head = id;
  list.pages += folio.pages();
}

void Lruvec::Unlink(FolioArena& arena, LruList which, FolioId id) {
  List& list = lists[static_cast<size_t>(which)];
  Folio& folio = arena.Get(id);
  if (folio.prev != FolioId::kNone) {
    arena.Get(folio.prev).next = folio.next;
  } else {
    MEMCG_CHECK(list.head == id);
    list.head = folio.next;
  }
  if (folio.next != FolioId::kNone) {
    arena.Get(folio.next).prev = folio.prev;
  } else {
    MEMCG_CHECK(list.tail == id);
    list.tail = folio.prev;
  }
  list.pages -= folio.pages();
}

}  // namespace memcgd::core
