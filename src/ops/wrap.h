// Turns a row's arguments into a parameter list and into statements, which one expansion of a macro
// cannot do: with the definitions below the arguments become a sequence, (IN, a)(OPT, b), and
// HY__EACH(M, sequence) applies M_IN(a) M_OPT(b). M needs M_IN, M_LIST, M_OUT, and the two steps
// that walk a sequence taking turns, M_A(kind, name) and M_B(kind, name), with M_A_END and M_B_END
// empty.
#ifndef HALYARD_OPS_WRAP_H_
#define HALYARD_OPS_WRAP_H_

// Ends the walk: glues _END to the last step's name, which is all that is left of it.
#define HY__END_(...) __VA_ARGS__##_END
#define HY__END(...) HY__END_(__VA_ARGS__)
#define HY__EACH(M, sequence) HY__END(M##_A sequence)

#endif  // HALYARD_OPS_WRAP_H_
