// A library with MPI's names that is too old: it speaks MPI 2.2. With HOLLOW it has none of them.
#ifndef HOLLOW
#define NAMED(name) \
  int name(void);   \
  int name(void) {  \
    return 1;       \
  }
NAMED(MPI_Get_library_version)
NAMED(MPI_Initialized)
NAMED(MPI_Finalized)
NAMED(MPI_Init_thread)
NAMED(MPI_Query_thread)
NAMED(MPI_Finalize)
NAMED(MPI_Comm_rank)
NAMED(MPI_Comm_size)
NAMED(MPI_Comm_free)
NAMED(MPI_Comm_group)
NAMED(MPI_Group_incl)
NAMED(MPI_Group_free)
NAMED(MPI_Comm_create_group)
NAMED(MPI_Comm_set_errhandler)
NAMED(MPI_Isend)
NAMED(MPI_Irecv)
NAMED(MPI_Iprobe)
NAMED(MPI_Test)
NAMED(MPI_Get_count)
NAMED(MPI_Cancel)
NAMED(MPI_Error_string)
NAMED(MPI_Allreduce)

int MPI_Get_version(int* major, int* minor);
int MPI_Get_version(int* major, int* minor) {
  *major = 2;
  *minor = 2;
  return 0;
}
#else
int nothing_of_mpi(void);
int nothing_of_mpi(void) {
  return 0;
}
#endif
