// Was started with files in the places of its standard streams; those are 3 and 4. Standard input is what 4 is until its
// end.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(void) {
    char line[64], byte;
    setvbuf(stdin, NULL, _IONBF, 0);
    printf("begun\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin) || strcmp(line, "first\n")) return 1;
    dprintf(3, "running\n");
    while (read(4, &byte, 1) > 0) {
    }
    if (!fgets(line, sizeof line, stdin)) return 2;
    // All that go on from there write the same at the same place.
    printf("ended\n");
    fflush(stdout);
    dprintf(3, "%sdone\n", line);
    return 0;
}
