#include "plancap/base/loaded_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace sdm::plancap {
namespace {

struct Search {
  std::string_view name;
  std::vector<std::string> paths;
};

int visit(dl_phdr_info* info, size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::string_view path = info->dlpi_name ? info->dlpi_name : "";
  const std::string_view file = path.substr(path.rfind('/') + 1);
  const bool known =
      std::find(search.paths.begin(), search.paths.end(), path) != search.paths.end();
  if (file.substr(0, search.name.size()) == search.name && !known) search.paths.emplace_back(path);
  return 0;
}

int read_changes(dl_phdr_info* info, size_t, void* data) {
  *static_cast<uint64_t*>(data) = info->dlpi_adds + info->dlpi_subs;
  return 1;  // every entry has the same counts
}

}  // namespace

LoadedSymbol find_loaded(const char* name, const char* symbol) {
  Search search{name, {}};
  dl_iterate_phdr(visit, &search);
  if (search.paths.empty()) return {nullptr, "the library is not loaded in this process"};
  if (search.paths.size() > 1) return {nullptr, "two libraries of this name are loaded"};
  void* library = dlopen(search.paths.front().c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return {nullptr, "the loaded library cannot be opened again"};
  void* address = dlsym(library, symbol);
  dlclose(library);  // gives back the reference taken here; torch holds its own
  if (!address) return {nullptr, "the loaded library lacks the function"};
  return {address, nullptr};
}

uint64_t library_changes() {
  uint64_t changes = 0;
  dl_iterate_phdr(read_changes, &changes);
  return changes;
}

}  // namespace sdm::plancap
