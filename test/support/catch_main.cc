#include "support/skip.h"

int main(int argc, char** argv) {
  return uroce::test::run_cases(argc, argv);
}
