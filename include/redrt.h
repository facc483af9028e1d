/* What redrt has besides MPI. A program that uses it runs with other MPIs too: there the function is not. */
#ifndef REDRT_H
#define REDRT_H

#ifdef __cplusplus
extern "C" {
#endif

/* The images of all processes are copied, and are written while the program goes on. */
#define REDRT_CHECKPOINT_TAKEN 0
/* This job takes no checkpoints: it was not started by redrun --checkpoint, or MPI is not initialized. */
#define REDRT_CHECKPOINT_NONE 1
/* None could be taken this time; redrun says why. The job goes on, and older checkpoints stay. */
#define REDRT_CHECKPOINT_FAILED 2

/* Saves the job now. Collective over all ranks of MPI_COMM_WORLD; outside callbacks of MPI. Returns the same in all
   processes, also in those that go on from this checkpoint later. */
#if defined(__GNUC__)
int redrt_checkpoint(void) __attribute__((weak));
#else
int redrt_checkpoint(void);
#endif

#ifdef __cplusplus
}
#endif

#endif
