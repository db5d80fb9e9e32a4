// A library that has the name of another and none of its functions.
int hollow(void);
int hollow(void) {
  return 0;
}
