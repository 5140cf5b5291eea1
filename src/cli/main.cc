#include "cli/program.h"

int main(int argc, char** argv) { return mference::cli::RunProgram(argc, argv); }
