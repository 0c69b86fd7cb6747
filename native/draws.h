// Draws the in-edges of a row that a hop takes: uniformly or by weight, with or without replacement.
#pragma once
#include <cstdint>

#include "shared/choices.h"

namespace graphmill {

// Write the positions that are taken to `picked` [choice.count].
void draw(const Relation& relation, const Choice& choice, const DrawRule& rule, uint64_t key, int64_t* picked);

}  // namespace graphmill
