// Which families have a forward pass: the one place above their folders that names them.
#pragma once

#include <memory>

#include "model/model.h"
#include "model/resident_weights.h"

namespace mference {

// What a family needs to build its forward pass.
struct ModelSources {
  const ArchConfig& arch;           // checked against the catalogue
  const JsonReader& config;         // the installed config.json
  const ResidentWeights& resident;  // borrowed by the model
  Backend& backend;                 // borrowed by the model
  ElementType kv_type = ElementType::kF16;
};

// Whether this build can run models of the family, or only install and verify them.
bool HasForwardPass(Family family);

// Loads the weights into the backend. Throws kUnknownFamily, naming the families that can run, for
// a family without a forward pass; kTensorNotFound and its kin for damaged weights.
std::unique_ptr<Model> MakeModel(const ModelSources& sources);

// The largest context the model was made for, from its config.json.
int64_t MaxContext(const ArchConfig& arch, const JsonReader& config);

}  // namespace mference
