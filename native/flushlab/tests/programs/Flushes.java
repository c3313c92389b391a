import static java.nio.file.StandardOpenOption.CREATE;
import static java.nio.file.StandardOpenOption.DSYNC;
import static java.nio.file.StandardOpenOption.READ;
import static java.nio.file.StandardOpenOption.WRITE;

import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;

/** The flushes of Java: fsync 8, fdatasync 5, msync 11, sync_writes 16. */
public class Flushes {
    public static void main(String[] words) throws Exception {
        Path path = Path.of(words[0]);
        byte[] block = new byte[512];
        try (FileChannel file = FileChannel.open(path, READ, WRITE, CREATE)) {
            MappedByteBuffer memory = file.map(FileChannel.MapMode.READ_WRITE, 0, 8192);
            for (int i = 0; i < 5; i++) {
                file.write(ByteBuffer.wrap(block));
                file.force(false);
            }
            for (int i = 0; i < 7; i++) {
                file.force(true);
            }
            for (int i = 0; i < 11; i++) {
                memory.put(i, (byte) 1);
                memory.force();
            }
        }
        try (FileChannel file = FileChannel.open(path, WRITE, DSYNC)) {
            for (int i = 0; i < 13; i++) {
                file.write(ByteBuffer.wrap(block));
            }
        }
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rwd")) {
            for (int i = 0; i < 3; i++) {
                file.write(block);
            }
            file.getFD().sync();
        }
    }
}
