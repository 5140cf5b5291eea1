// The user's token for the hub, wherever the hub's own tools would find it.
#pragma once

#include <string>

namespace mference {

// HF_TOKEN, else the token file: HF_TOKEN_PATH, HF_HOME/token, XDG_CACHE_HOME/huggingface/token,
// ~/.cache/huggingface/token. Empty when there is none.
std::string FindHubToken();

}  // namespace mference
