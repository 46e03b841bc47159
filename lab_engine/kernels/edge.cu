// What does the way from one kernel to the next cost? Kernels that do nothing: launched plainly, and as dependents.

extern "C" __global__ void edge_plain() {}

// Lets the kernel behind it begin at once, then waits for the one before it, as a GEMV has to before it reads x.
extern "C" __global__ void edge_dependent() {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
}
